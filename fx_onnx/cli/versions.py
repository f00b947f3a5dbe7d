"""``fx-onnx versions``: what is installed."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from typing import Annotated

import typer

from fx_onnx.cli.json_output import print_json
from fx_onnx.torch_internals.version import version

__all__ = ["versions"]


def versions(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")] = False) -> None:
    """Prints the versions of fx_onnx and of the packages it uses."""
    packages = ("torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "numpy", "transformers")
    installed = {"fx_onnx": version(), **{package: _installed(package) for package in packages}}
    installed["python"] = sys.version.split()[0]
    if as_json:
        print_json(installed)
        return
    for name, text in installed.items():
        typer.echo(f"{name} {text or 'is not installed'}")


def _installed(package: str) -> str | None:
    try:
        return package_version(package)
    except PackageNotFoundError:
        return None
