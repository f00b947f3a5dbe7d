"""Small programs and translation tables for the tests of decomposition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.functionalize import functionalize
from fx_onnx.extension_points.translation_table import Translation, TranslationTable
from tests.modules import FunctionModule

aten = torch.ops.aten


def table(*targets: Any, supports: dict[Any, Callable[..., bool]] | None = None) -> TranslationTable:
    """Returns a table that translates only these targets, by functions that are never called."""
    entries = {target: Translation(target, lambda op, *args: None) for target in targets}
    for target, predicate in (supports or {}).items():
        entries[target] = Translation(target, lambda op, *args: None, supports=predicate)
    return TranslationTable(20, entries)


CORE = tuple(
    getattr(getattr(aten, name), overload)
    for name, overload in (
        ("add", "Tensor"), ("sub", "Tensor"), ("mul", "Tensor"), ("mul", "Scalar"), ("div", "Tensor"),
        ("exp", "default"),
        ("sigmoid", "default"), ("relu", "default"), ("mm", "default"), ("view", "default"), ("permute", "default"),
        ("sum", "dim_IntList"), ("amax", "default"), ("mean", "dim"), ("rsqrt", "default"), ("add", "Scalar"),
        ("unsqueeze", "default"), ("expand", "default"), ("clone", "default"), ("reshape", "default"),
        ("alias", "default"), ("where", "self"), ("scalar_tensor", "default"), ("gt", "Scalar"), ("neg", "default"),
    )
)  # fmt: skip


def captured(function: Callable[..., Any] | nn.Module, *inputs: Tensor, dynamic: bool = False) -> AtenProgram:
    model = function if isinstance(function, nn.Module) else FunctionModule(function)
    shapes = (tuple({0: Dim.AUTO} for _ in inputs),) if dynamic else None
    return functionalize(AtenProgram.captured(torch.export.export(model, inputs, dynamic_shapes=shapes)))


def targets(program: AtenProgram) -> list[Any]:
    return [node.target for node in program.graph.nodes if node.op == "call_function"]


def run(program: AtenProgram, *inputs: Tensor) -> Any:
    holder = nn.Module()
    for name, value in program.constants.items():
        holder.register_buffer(name, value)
    return torch.fx.Interpreter(torch.fx.GraphModule(holder, program.graph)).run(*inputs)
