"""Opset 13 → 12."""

from __future__ import annotations

import numpy as np
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.opsets.step import (
    OpsetStep,
    UnsupportedNodeError,
    axes_to_attribute,
    known_rank,
    static_integers,
)

__all__ = ["STEP_12"]


def squeeze(f: NodeBuilder) -> None:
    """Squeeze(x, axes), Unsqueeze(x, axes) → Squeeze<axes>(x), Unsqueeze<axes>(x).

    Legal because both mean the same for constant axes.
    """
    axes = static_integers(f, 1, "axes are")
    f.editor.replace(f.node, f.node.op_type, f.node.inputs[:1], {} if axes is None else {"axes": axes})


def split(f: NodeBuilder) -> None:
    """Split(x, sizes) → Split<split>(x), or one Slice for each part if the sizes are dynamic.

    Legal because part i of Split begins at the sum of the sizes before it.
    """
    node = f.node
    x, sizes = (*node.inputs, None)[:2]
    axis = f.attribute("axis", 0)
    try:
        known = static_integers(f, 1, "sizes are")
    except UnsupportedNodeError:
        known = None
    if sizes is None or known is not None:
        f.editor.replace(node, "Split", [x], {"axis": axis, "split": known})
        return
    begin: Value = f.constant([0])
    for place, output in enumerate(node.outputs):
        end = f.Add(begin, f.Slice(sizes, [place], [place + 1], [0], sizes=(1,)), sizes=(1,))
        f.editor.replace_result(output, f.Slice(x, begin, end, [axis]))
        begin = end
    f.editor.remove_if_unused(node)


def softmax(f: NodeBuilder) -> None:
    """Softmax<axis>(x), LogSoftmax, Hardmax → Transpose, the operator on the last axis, Transpose.

    Legal because opset 12 normalizes over all axes from ``axis`` on, which are the same for the last axis only.
    """
    node = f.node
    (x,) = node.inputs
    rank = known_rank(f)
    axis = f.attribute("axis", -1) % max(rank, 1)
    if axis == rank - 1:
        f.editor.replace(node, node.op_type, [x], {"axis": axis})
        return
    if rank == 0:
        raise UnsupportedNodeError("its input is a scalar")
    swap = [*range(axis), rank - 1, *range(axis + 1, rank - 1), axis]
    last = f.emit(node.op_type, [f.Transpose(x, perm=swap)], {"axis": rank - 1})[0]
    f.editor.replace(node, "Transpose", [last], {"perm": swap})


def resize(f: NodeBuilder) -> None:
    """Resize(x, , scales) → Resize(x, [], scales), Resize(x, , , sizes) → Resize(x, [], [], sizes).

    Legal because opset 12 requires empty tensors where opset 13 allows absent inputs.
    """
    node = f.node
    x, roi, scales, sizes = (*node.inputs, None, None, None)[:4]
    empty = f.constant(np.zeros(0, np.float32))
    inputs = [x, roi or empty, scales or empty]
    f.editor.replace(node, "Resize", inputs if sizes is None else [*inputs, sizes])


def quantize_linear(f: NodeBuilder) -> None:
    """QuantizeLinear<axis>(x, s, z) → Cast(Clip(Round(x / s) + z)), DequantizeLinear<axis>(x, s, z) → (x - z) * s.

    Legal because these are the definitions. With a scale for the whole tensor the operator stays, as opset 12 has it.
    """
    node = f.node
    x, scale, zero = (*node.inputs, None)[:3]
    rank = None if scale is None or scale.shape is None else len(scale.shape)
    if rank == 0:
        kept = {name: a for name, a in node.attributes.items() if name != "axis"}
        f.editor.replace(node, node.op_type, list(node.inputs), kept)
        return
    if rank != 1 or x is None:
        raise UnsupportedNodeError("its scale is not a scalar or a vector")
    last = known_rank(f) - 1 - f.attribute("axis", 1) % known_rank(f)
    fitted = [v if v is None or not last else f.Unsqueeze(v, axes=list(range(1, last + 1))) for v in (scale, zero)]
    if node.op_type == "DequantizeLinear":
        floats = [f.Cast(v, to=int(DataType.FLOAT)) for v in (x, fitted[1]) if v is not None]
        shifted = floats[0] if len(floats) < 2 else f.Sub(*floats)
        f.editor.replace(node, "Mul", [shifted, fitted[0]], {})
        return
    low, high = {DataType.UINT8: (0.0, 255.0), DataType.INT8: (-128.0, 127.0)}[f.dtype]
    rounded = f.Round(f.Div(x, fitted[0]))
    if fitted[1] is not None:
        rounded = f.Add(rounded, f.Cast(fitted[1], to=int(DataType.FLOAT)))
    f.editor.replace(node, "Cast", [f.Clip(rounded, low, high)], {"to": int(f.dtype)})


STEP_12 = OpsetStep(
    12,
    rewrites={
        "DequantizeLinear": quantize_linear,
        "Hardmax": softmax,
        "LogSoftmax": softmax,
        "QuantizeLinear": quantize_linear,
        "Resize": resize,
        "ReduceSum": axes_to_attribute,
        "Softmax": softmax,
        "Split": split,
        "Squeeze": squeeze,
        "Unsqueeze": squeeze,
    },
)
