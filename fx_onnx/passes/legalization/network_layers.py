"""Legalization of convolutions, pooling and recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.core import metadata
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, is_read_by
from fx_onnx.passes.rewriter import Rewrite
from fx_onnx.passes.rules import Result, rule

__all__ = ["LegalizeInitialStates", "legalize_group_norm", "legalize_one_spatial_axis", "legalize_pads"]

_FIRST = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 0, "output_shape": 1}
"""The value of each attribute for the axis that is added."""
_STATES = {"RNN": (5,), "GRU": (5,), "LSTM": (5, 6)}
"""The positions of the initial states among the inputs."""


@rule("Pad(x, pads, value | None)")
def legalize_pads(f: NodeBuilder, node: ir.Node, x: Value, pads: Value, value: Value | None) -> Result:
    """Pad(x, pads, value) before a pooling → Pad(x, pads, value, axes).

    Legal because ``axes`` lists all axes, which is the default. ONNX Runtime's graph optimizer merges a Pad of zeros
    into the MaxPool or AveragePool after it, but not a Pad that has ``axes``. For a MaxPool the merged form is wrong:
    its own padding is never the maximum, but a zero of the Pad is the maximum where all values are negative. An
    AveragePool may end up with more padding than its window, and then the model does not load.
    """
    if not is_read_by(node.outputs[0], "MaxPool", "AveragePool"):
        return None
    if x.shape is None:
        return "the shape of its input is unknown"
    return f.Pad(x, pads, value, list(range(len(x.shape))), **dict(node.attributes))


@rule(
    "Conv(x, weight, *rest)",
    "ConvTranspose(x, weight, *rest)",
    since=13,
    where={"x": lambda x: x.shape is not None and len(x.shape) == 3},
)
def legalize_one_spatial_axis(
    f: NodeBuilder, node: ir.Node, x: Value, weight: Value, rest: Sequence[Value | None]
) -> Result:
    """Conv(x, w) of one axis → Squeeze(Conv(Unsqueeze(x), Unsqueeze(w))); ConvTranspose too.

    Legal because a kernel of size 1 along an axis of size 1 changes nothing. MNN (measured with 3.6.1, on a CPU) has no
    result of a grouped convolution along one axis with a computed weight, such as one with weight norm. An output of
    the graph that is the result of a convolution along one axis, or its Relu, has one axis too many. Convolutions along
    two axes are right.
    """
    given: dict[str, Any] = {name: each.value for name, each in node.attributes.items()}
    options = {name: [_FIRST[name], *value] if name in _FIRST else value for name, value in given.items()}
    if "pads" in options:
        before, after = options["pads"]
        options["pads"] = [0, before, 0, after]
    operands = [f.Unsqueeze(x, [2]), f.Unsqueeze(weight, [2]), *rest]
    return f.Squeeze(f.emit(node.op_type, operands, options)[0], [2])


@rule("GroupNormalization(x, scale, bias)", since=21)
def legalize_group_norm(f: NodeBuilder, node: ir.Node, x: Value, scale: Value, bias: Value) -> Result:
    """GroupNormalization(x, scale, bias) → Reshape(InstanceNormalization(Reshape(x))) * scale + bias.

    Legal because the statistics of a group are those of one channel that holds the group. ONNX Runtime's CPU provider
    has no kernel for GroupNormalization. It expands the function body of ONNX, which takes 1.2 to 1.4 times as long
    (measured with 1.31.1 on 2 × 64 × 32 × 32 numbers), and which fails if the batch or a spatial axis is empty.
    """
    shape, groups = x.shape, f.attribute("num_groups")
    if metadata.EXPLICIT in node.meta:
        return "the model asks for this operator"
    if x.dtype != ir.DataType.FLOAT or shape is None or not isinstance(channels := shape[1], int):
        return "the dtype is not float32, or the number of channels is unknown"
    split = [shape[0], groups, channels // groups, *shape[2:]]
    whole: Any = [0, *shape[1:]]  # Reshape copies the size of the batch
    parts: Any = [0, *split[1:]]
    copies = all(isinstance(size, int) and size > 0 for size in whole[1:])
    if not copies:
        whole = f.Shape(x)
        parts = f.Concat(f.Shape(x, start=0, end=1), split[1:3], f.Shape(x, start=2), axis=0)
    zero = None if copies else 1
    ones, zeros = np.ones(groups, np.float32), np.zeros(groups, np.float32)
    grouped = f.Reshape(x, parts, allowzero=zero, sizes=split)
    normal = f.InstanceNormalization(grouped, ones, zeros, epsilon=f.attribute("epsilon"))
    normal = f.Reshape(normal, whole, allowzero=zero, sizes=shape)
    axes = list(range(1, len(shape) - 1))
    return f.Add(f.Mul(normal, f.Unsqueeze(scale, axes)), f.Unsqueeze(bias, axes))


class LegalizeInitialStates(Rewrite):
    """GRU(x, w, r) → GRU(x, w, r, initial_h=zeros); the same for RNN, and for LSTM with its two states.

    Legal because ONNX defines an absent initial state as zeros. tract (measured with 0.23.9) needs the number of rows
    to make them: it panics at a layer without an initial state if the batch is dynamic.
    """

    name = "legalize_initial_states"
    op_types = tuple(_STATES)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Adds the states that one layer lacks. The node stays, because its results may be absent."""
        places = _STATES[node.op_type]
        inputs = [*node.inputs, *[None] * (places[-1] + 1 - len(node.inputs))]
        x, width = inputs[0], attribute(node, "hidden_size", 0)
        if x is None or all(inputs[place] is not None for place in places):
            return False
        if attribute(node, "layout", 0) or not width:
            return self.declines(node, "the batch is the first axis, or the size of the state is not an attribute")
        f = NodeBuilder(node, editor, x.dtype)
        directions = 2 if attribute(node, "direction", "forward") == "bidirectional" else 1
        zeros = f.Expand(f.constant(0), f.Concat([directions], f.Shape(x, start=1, end=2), [width], axis=0))
        for place in places:
            inputs[place] = inputs[place] or zeros
        editor.replace(node, node.op_type, inputs)
        return True
