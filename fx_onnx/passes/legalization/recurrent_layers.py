"""Legalization of recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.rules import Result

__all__ = ["legalize_initial_states"]

_STATES = {"RNN": (5,), "GRU": (5,), "LSTM": (5, 6)}
"""The positions of the initial states among the inputs."""


@legalizes("RNN(x, *rest)", "GRU(x, *rest)", "LSTM(x, *rest)", targets=("tract",))
def legalize_initial_states(f: NodeBuilder, node: ir.Node, x: Value, rest: Sequence[Value | None]) -> Result:
    """GRU(x, w, r) → GRU(x, w, r, initial_h=zeros); the same for RNN, and for LSTM with its two states.

    Legal because ONNX defines an absent initial state as zeros. tract (measured with 0.23.9) needs the number of rows
    to make them: it panics at a layer without an initial state if the batch is dynamic.
    """
    places, width = _STATES[node.op_type], f.attribute("hidden_size", 0)
    inputs = [x, *rest, *[None] * (places[-1] - len(rest))]
    if all(inputs[place] is not None for place in places):
        return None
    if f.attribute("layout", 0) or not width:
        return "the batch is the first axis, or the size of the state is not an attribute"
    directions = 2 if f.attribute("direction", "forward") == "bidirectional" else 1
    zeros = f.Expand(f.constant(0, x.dtype), f.Concat([directions], f.Shape(x, start=1, end=2), [width], axis=0))
    for place in places:
        inputs[place] = inputs[place] or zeros
    return f.emit(node.op_type, inputs, node.attributes, outputs=len(node.outputs))
