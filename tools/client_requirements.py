"""Checks that the packages of users resolve together with this checkout, without installing anything.

    python -m tools.client_requirements [PACKAGE ...]

For each package, pip looks for versions of it and of the requirements of fx_onnx that fit together, in the running
Python. The exit code is 1 if it finds none for a package.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PACKAGES = ("ultralytics", "optimum-onnx", "sherpa-onnx", "lerobot", "timm transformers", "onnxruntime-genai",
            "nvidia-modelopt")  # fmt: skip
ROOT = Path(__file__).parents[1]
_SHOWN = ("torch", "onnx", "onnxruntime", "numpy", "transformers")


def resolve(packages: str) -> Mapping[str, str] | str:
    """Returns the version of each package that pip would install beside fx_onnx, or pip's error."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    with tempfile.TemporaryDirectory() as folder:  # pip may print warnings to the standard output
        report = Path(folder) / "report.json"
        arguments = [*command, "--report", str(report), str(ROOT), *packages.split()]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode:
            return next((line for line in done.stderr.splitlines() if line.startswith("ERROR")), done.stderr[-500:])
        installed: list[Any] = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {package["metadata"]["name"].lower(): package["metadata"]["version"] for package in installed}


def row(packages: str, versions: Mapping[str, str] | str) -> str:
    """Returns a line with the versions that matter, or with the error."""
    if isinstance(versions, str):
        return f"{packages}: {versions}"
    names = dict.fromkeys([*packages.split(), *_SHOWN])
    return f"{packages}: {', '.join(f'{name} {versions[name]}' for name in names if name in versions)}"


def main(packages: Sequence[str]) -> int:
    """Prints a line for each package; returns the exit code."""
    failed = False
    for package in packages or PACKAGES:
        result = resolve(package)
        print(row(package, result), flush=True)
        failed |= isinstance(result, str)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
