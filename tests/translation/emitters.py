"""An emitter over an empty graph, with symbolic sizes of torch, for the tests of translation."""

from __future__ import annotations

import onnx_ir as ir
import torch
from onnx_ir import DataType
from torch.export import Dim

from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translation.size_values import SymbolTable


def symbolic_sizes() -> tuple[torch.SymInt, torch.SymInt]:
    """Returns two symbolic sizes of one captured program."""
    model = torch.nn.Identity()
    program = torch.export.export(model, (torch.randn(7, 5),), dynamic_shapes=({0: Dim("a"), 1: Dim("b")},))
    (placeholder,) = program.graph.find_nodes(op="placeholder")
    a, b = placeholder.meta["val"].shape
    return a, b


def emitter(opset: int = 20) -> Emitter:
    return Emitter(ir.Graph((), (), nodes=(), opset_imports={"": opset}, name="g"), opset, SymbolTable({}))


def value(op: Emitter, dtype: DataType = DataType.FLOAT, *dims: Size, name: str = "x") -> ir.Value:
    made = ir.Value(name=name, type=ir.TensorType(dtype))
    op.graph.inputs.append(made)
    op.with_sizes(made, dims)
    op.symbols.define_sizes(made, dims)
    return made


def constants(op: Emitter) -> list[tuple[DataType, list[object]]]:
    held = op.graph.initializers.values()
    return [(v.const_value.dtype, v.const_value.numpy().tolist()) for v in held if v.const_value is not None]


def kinds(op: Emitter) -> list[str]:
    return [node.op_type for node in op.graph]
