"""Initial states of recurrent layers as tensors of zeros, for a runtime that needs the number of rows to make them.

tract (measured with 0.23.9) panics at a GRU, LSTM or RNN without an initial state if the batch is dynamic.
"""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeInitialStates"]

_STATES = {"RNN": (5,), "GRU": (5,), "LSTM": (5, 6)}
"""The positions of the initial states among the inputs."""


class LegalizeInitialStates(Rewrite):
    """GRU(x, w, r) → GRU(x, w, r, initial_h=zeros); the same for RNN, and for LSTM with its two states.

    Legal because ONNX defines an absent initial state as zeros. The pass belongs to the target tract.
    """

    name = "legalize_initial_states"
    op_types = tuple(_STATES)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Adds the states that one layer lacks."""
        places = _STATES[node.op_type]
        inputs = [*node.inputs, *[None] * (places[-1] + 1 - len(node.inputs))]
        x, width = inputs[0], attribute(node, "hidden_size", 0)
        if x is None or all(inputs[place] is not None for place in places):
            return False
        if attribute(node, "layout", 0) or not width:
            return self.declines(node, "the batch is the first axis, or the size of the state is not an attribute")
        f = NodeBuilder(node, editor, x.dtype)
        directions = 2 if attribute(node, "direction", "forward") == "bidirectional" else 1
        batch = f.Shape(x, start=1, end=2, sizes=(1,))
        shape = f.Concat([directions], batch, [width], axis=0, sizes=(3,))
        zeros = f.Expand(f.constant(0), shape)
        for place in places:
            inputs[place] = inputs[place] or zeros
        editor.replace(node, node.op_type, inputs)
        return True
