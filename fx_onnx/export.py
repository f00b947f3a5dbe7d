"""export(): nn.Module → capture → functionalize → decompose → translate → optimize → ONNXProgram, read top to bottom."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import IO, Any

import onnx_ir as ir
import torch

from fx_onnx import ops as ops  # registers the translations
from fx_onnx.arguments import Request, parse_request
from fx_onnx.capture import capture
from fx_onnx.decompose import decompose
from fx_onnx.errors import ArgumentError
from fx_onnx.functionalize import functionalize
from fx_onnx.optimize import optimize as optimize_model
from fx_onnx.program import ONNXProgram
from fx_onnx.table import table
from fx_onnx.translate import translate

DEFAULT_OPSET = 20


def export(
    model: torch.nn.Module | torch.export.ExportedProgram,
    args: tuple[Any, ...] | torch.Tensor = (),
    f: str | os.PathLike[str] | IO[bytes] | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamic_shapes: Any = None,
    optimize: bool = True,
    dynamic_axes: Any = None,
) -> ONNXProgram:
    """Exports a model to ONNX (under construction: the remaining parameters follow)."""
    opset = DEFAULT_OPSET if opset_version is None else opset_version
    request = parse_request(
        model,
        args,
        dict(kwargs) if kwargs is not None else None,
        input_names=input_names,
        output_names=output_names,
        dynamic_shapes=dynamic_shapes,
        dynamic_axes=dynamic_axes,
    )
    translations = table(opset)
    captured = capture(request)
    program = decompose(functionalize(captured.exported_program), translations)
    onnx_model = translate(program, translations, captured.symbol_names)
    _name_inputs_and_outputs(onnx_model, request)
    if optimize:
        onnx_model = optimize_model(onnx_model)
    result = ONNXProgram(onnx_model, captured.exported_program)
    if f is not None:
        result.save(f)
    return result


def _name_inputs_and_outputs(model: ir.Model, request: Request) -> None:
    for kind, values, names in (
        ("input", model.graph.inputs, request.input_names),
        ("output", model.graph.outputs, request.output_names),
    ):
        if len(names) > len(values):
            raise ArgumentError(f"{len(names)} {kind}_names were given, but the model has {len(values)} {kind}s.")
        for value, name in zip(values, names, strict=False):
            value.name = name
