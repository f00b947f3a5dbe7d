"""Compiles a model for Qualcomm's Hexagon NPU, if onnxruntime-qnn is installed. No NPU is needed."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from fx_onnx.backends import qnn_session
from fx_onnx.passes.matchers import dims
from fx_onnx.targets.compilation import Compilation, Refusal, one_line

__all__ = ["compile_model", "dynamic_dim", "installed_version", "run_program"]

_NOT_INSTALLED = "its compiler is not installed, which the extra fx_onnx[qnn] has"
_SECONDS = 600
_REFUSED = re.compile(r"Operator type: (\S+) Node name: (.*?) Node index: \d+\s*\n\s*REASON : (.*)")
_ERROR = re.compile(r"\[E:[^\]]*\] (.*)")


@functools.cache
def installed_version() -> str:
    """Returns the version of onnxruntime-qnn; empty if it is not installed."""
    try:
        return importlib.metadata.version("onnxruntime-qnn")
    except importlib.metadata.PackageNotFoundError:
        return ""


def compile_model(model: ir.Model, shapes: Mapping[str, Sequence[int]]) -> Compilation:
    """Compiles a model with the provider's compiler, for the NPU of Snapdragon X Elite, if the package is installed.

    Args:
        model: the model.
        shapes: not used: the NPU has static shapes only.

    The weights are written to a temporary folder.
    """
    version = installed_version()
    runtime = f"onnxruntime-qnn {version}, for the NPU of Snapdragon X Elite".replace("  ", " ")
    refusals = [Refusal(text)] if (text := dynamic_dim(model)) else []
    if refusals or not version:
        return Compilation(runtime, tuple(refusals), unjudged="" if version else _NOT_INSTALLED)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        ir.save(model, path, external_data="weights.bin")
        size, refusals = run_program(path)
    return Compilation(runtime, tuple(refusals), size)


def dynamic_dim(model: ir.Model) -> str:
    """Returns why the NPU does not take a model with a dynamic dim; empty if all are static."""
    for value in model.graph.inputs:
        for size in dims(value) or ():
            if not isinstance(size, int):
                return f"the NPU has static shapes only, and the dim {size} of the input {value.name!r} is dynamic"
    return ""


def run_program(path: Path, *files: Path) -> tuple[int, list[Refusal]]:
    """Compiles a file in a process of its own, which the compiler may end.

    Args:
        path: the ONNX file.
        files: an .npz file of inputs by name, and the one for the results; nothing is run without them.

    Returns:
        The size of the compiled form, 0 if there is none, and why there is none.
    """
    command = [sys.executable, qnn_session.__file__, *map(str, (path, *files))]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False, errors="replace")
    except subprocess.TimeoutExpired:
        return 0, [Refusal(f"there is no compiled model after {_SECONDS} s")]
    if run.returncode:
        return 0, list(_refusals(run.stderr))
    return json.loads(run.stdout[run.stdout.index('{"bytes"') :])["bytes"], []


def _refusals(log: str) -> Iterator[Refusal]:
    """Yields why a model is not compiled: the nodes that the provider refuses, or the last words of the log."""
    named = {(name, operator): text for operator, name, text in _REFUSED.findall(log)}
    for (name, operator), text in named.items():
        yield Refusal(one_line(text), name.strip(), operator)
    if not named:
        last = log.strip().splitlines()[-1:]
        yield Refusal(one_line("; ".join(["the compiler ended", *_ERROR.findall(log)[-2:], *last])))
