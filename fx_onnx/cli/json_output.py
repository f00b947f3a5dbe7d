"""What the commands print with ``--json``."""

from __future__ import annotations

import json
from typing import Any

import typer

from fx_onnx.messages.errors import OnnxExporterError

__all__ = ["failure", "model_facts", "print_json"]


def print_json(value: Any) -> None:
    """Prints an object to stdout."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def model_facts(summary: Any) -> dict[str, Any]:
    """Returns the facts of ``ONNXProgram.summary()``."""
    return {
        "opset": dict(summary.opset),
        "inputs": list(summary.inputs),
        "outputs": list(summary.outputs),
        "nodes": sum(summary.operators.values()),
        "operators": dict(summary.operators),
        "parameters": summary.parameters,
        "parameter_bytes": summary.parameter_bytes,
    }


def failure(error: OnnxExporterError) -> dict[str, Any]:
    """Returns the error of a command that failed, and the warnings before it."""
    return {
        "error": {"id": error.id, "message": error.message, "place": error.place or None},
        "warnings": [str(finding) for finding in error.findings],
    }
