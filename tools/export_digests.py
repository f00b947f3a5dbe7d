"""Writes digests of the results of many exports, and compares those of two commits.

    python -m tools.export_digests write FILE [--only PATTERN]
    python -m tools.export_digests compare OLD NEW

A restructuring of the package is proven to change no export if the files of both commits are equal. A digest has the
SHA-256 of each file of an export, its findings, its dynamic dims and its warnings, or the error. Run it in the root of
the checkout, with equal packages at both commits. To compare with a commit that does not have this tool, copy
tools/export_digests.py and tools/digest_*.py there, and the folder tests/models if it differs.

The places of code of the package itself are no part of a digest, so lines of the package may move.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import importlib
import io
import json
import os
import random
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

import fx_onnx
from tools.digest_cases import CASES, Case

MODULES = ("digest_operators", "digest_networks", "digest_models", "digest_calls")
"""The modules of this folder that add the cases."""

HASHED = (".onnx", ".data", ".json", ".pb", ".onnx_adapter")
"""The files whose content is compared. Of others, such as reports, which have times, only the names are."""

_REPLACED = {
    re.compile(r' *File "(?:fx_onnx|decompositions)/[^"]*", line \d+, in .*\n?(?:(?! *File ").*(?:\n|$))*'): "",
    re.compile(r"\b(?:fx_onnx|decompositions)/[\w/]+\.py:\d+"): "PACKAGE",
    re.compile(r"\bfx_onnx(?:\.[a-z_]\w*)+(?=\.[A-Z]\w*)"): "PACKAGE",
    re.compile(r"[^\s\"'(]*site-packages/"): "",
    re.compile(r"\b0x[0-9a-f]{6,}\b"): "ADDRESS",
}
"""What a digest has instead of places of the package, of installed packages, and of memory."""


_TIME = re.compile(r"\d{4}-\d\d-\d\d_[\d-]+")
_TOOLS = str(Path(__file__).parent)


def without_places(text: str, folder: Path) -> str:
    """Returns a text without paths of this machine, addresses, and places in the code of the package."""
    text = text.replace(str(folder), "FOLDER").replace(f"{Path.cwd()}{os.sep}", "")
    for pattern, name in _REPLACED.items():
        text = pattern.sub(name, text)
    return text


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def model_sha(proto: onnx.ModelProto, folder: Path) -> str:
    """Returns the hash of a model. Its metadata is changed: ``without_places``."""

    def visit(message: Any) -> None:
        for field, value in message.ListFields():
            if field.name == "metadata_props":
                for entry in value:
                    entry.value = without_places(entry.value, folder)
            elif field.name == "doc_string":
                message.doc_string = without_places(value, folder)
            elif field.message_type is not None and field.name not in ("initializer", "raw_data"):
                for each in value if isinstance(value, Iterable) else (value,):
                    visit(each)

    visit(proto)
    return _sha(proto.SerializeToString(deterministic=True))


def _result(found: Any, folder: Path) -> Any:
    """Returns what a digest has of the result of a case."""
    if isinstance(found, fx_onnx.ONNXProgram):
        return {
            "model": model_sha(found.model_proto, folder) if _has_data(found) else "without weights",
            "findings": [[without_places(str(getattr(each, key)), folder) for key in ("id", "text", "place")]
                         for each in found.findings],
            "dims": without_places(str(found.dims), folder),
        }  # fmt: skip
    if isinstance(found, onnx.ModelProto):
        return model_sha(found, folder)
    return [_result(each, folder) for each in found] if isinstance(found, (list, tuple)) else _text(found, folder)


def _has_data(program: fx_onnx.ONNXProgram) -> bool:
    values = program.model.graph.initializers.values()
    return all(value.const_value is not None for value in values)


def _text(found: Any, folder: Path) -> str:
    return without_places(str(found), folder)


def _file(path: Path, folder: Path) -> str:
    """Returns the hash of a file of an export; "written" for a file that need not be equal."""
    if path.suffix not in HASHED:
        return "written"
    if path.suffix == ".onnx":
        return model_sha(onnx.load(path, load_external_data=False), folder)
    return _sha(path.read_bytes().replace(str(folder).encode(), b"FOLDER"))


def digest(case: Case) -> dict[str, Any]:
    """Returns the digest of one export."""
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        folder, found = Path(name), {}
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                found["result"] = _result(case(folder), folder)
        except Exception as error:
            found["error"] = [type(error).__name__, str(getattr(error, "id", "")), _text(error, folder)]
        of_export = [each for each in issued if issubclass(each.category, (fx_onnx.OnnxExporterWarning, FutureWarning))]
        found["warnings"] = [_text(each.message, folder) for each in of_export if each.filename.startswith(_TOOLS)]
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        found["files"] = {_TIME.sub("TIME", path.relative_to(folder).as_posix()): _file(path, folder) for path in paths}
    return {key: value for key, value in found.items() if value}


def write(path: Path, pattern: str) -> dict[str, Any]:
    """Writes the digests of the cases whose names match, and returns them."""
    for module in MODULES:
        importlib.import_module(f"tools.{module}")
    chosen, found, times = [name for name in sorted(CASES) if fnmatch.fnmatch(name, pattern)], {}, {}
    for name in chosen:
        start = time.perf_counter()
        found[name] = digest(CASES[name])
        times[name] = time.perf_counter() - start
    path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", "utf-8")
    failed = sum("error" in each for each in found.values())
    slowest = ", ".join(f"{name} {times[name]:.1f} s" for name in sorted(times, key=lambda name: -times[name])[:5])
    print(f"{len(found)} cases, {failed} of them with an error, in {sum(times.values()):.0f} s; slowest: {slowest}")
    return found


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Returns a text for each value that differs."""
    return [line for name in sorted({*old, *new}) for line in _differences(name, old.get(name), new.get(name))]


def _differences(place: str, old: Any, new: Any) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line for key in sorted({*old, *new}) for line in _differences(f"{place}: {key}", old.get(key), new.get(key))
        ]
    return [] if old == new else [f"{place}\n  old: {json.dumps(old)}\n  new: {json.dumps(new)}"]


def compare(old: Path, new: Path) -> int:
    """Prints the differences of two files, and returns 1 if there are any."""
    first, second = (json.loads(path.read_text("utf-8")) for path in (old, new))
    found = differences(first, second)
    for line in found:
        print(line)
    names = {line.partition(":")[0].partition("\n")[0] for line in found}
    print(f"{len(first.keys() & second.keys())} cases in both files, {len(names)} cases differ")
    return int(bool(found))


def main(arguments: list[str] | None = None) -> int:
    """Runs one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    writing, comparing = (commands.add_parser(name) for name in ("write", "compare"))
    writing.add_argument("file", type=Path)
    writing.add_argument("--only", metavar="PATTERN", default="*", help="such as 'attention/*'")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "compare":
        return compare(options.old, options.new)
    write(options.file, options.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
