"""Passes of rooms, which are imported when a model has what they rewrite."""

from __future__ import annotations

from itertools import chain

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.extension_points import rooms
from fx_onnx.passes.rewriter import Pass
from fx_onnx.passes.traversal import all_initializers, all_nodes, graphs_of

__all__ = ["QuantizedWeightPass"]

_OPERATORS = frozenset({"BitwiseAnd", "DequantizeLinear"})
_SMALL = frozenset(
    kind
    for kind in DataType
    if kind.name.startswith(("INT8", "UINT8", "INT4", "UINT4", "INT2", "UINT2", "FLOAT8", "FLOAT4"))
)


class QuantizedWeightPass(Pass):
    """A pass of the room of quantized weights, by its name and its row in the table of rooms.

    A model needs it if it has weights of 8 bits or fewer, or weights that are packed into wider integers.
    """

    def __init__(self, name: str, row: str = "") -> None:
        super().__init__()
        self.name, self._row = name, row or name

    def of(self, model: ir.Model) -> Pass | None:
        """Returns the pass; None for a model without quantized weights."""
        is_needed = any(value.dtype in _SMALL for value in all_initializers(model.graph)) or any(
            node.op_type in _OPERATORS for node in chain.from_iterable(map(all_nodes, graphs_of(model)))
        )
        return self.load() if is_needed else None

    def load(self) -> Pass:
        """Returns the pass itself."""
        loaded: Pass = rooms.find("passes", self._row)
        return loaded

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Runs the pass."""
        loaded = self.of(model)
        return ir.passes.PassResult(model, modified=False) if loaded is None else loaded(model)
