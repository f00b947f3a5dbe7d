"""Captures models for the tests, and reads the shapes of captured inputs."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.export import ExportedProgram

from fx_onnx.capture.capture import Capture, capture
from fx_onnx.messages.errors import OnnxExporterWarning
from fx_onnx.requests.request import parse_request
from tests.capture.sample_modules import Function


def run(function: Any, *args: Any, **options: Any) -> Capture:
    """Captures a module, a program or a function; fails if there is a warning."""
    model = function if isinstance(function, (torch.nn.Module, ExportedProgram)) else Function(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        if isinstance(model, torch.nn.Module):
            model.eval()
        return capture(parse_request(model, args, **options))


def shapes(captured: Capture) -> list[tuple[str, ...]]:
    """Returns the shapes of the user's inputs, with the user's names for dims."""
    program = captured.exported_program
    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    names = captured.symbol_names
    inputs = [values[name] for name in program.graph_signature.user_inputs]
    return [tuple(names.get(str(dim), str(dim)) for dim in value.shape) for value in inputs]
