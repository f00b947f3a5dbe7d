"""Opset 18 → 17."""

from __future__ import annotations

import math

import numpy as np
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.opsets.scatter_reduction import expand_reduction
from fx_onnx.passes.legalization.opsets.step import (
    OpsetStep,
    UnsupportedNodeError,
    axes_to_attribute,
    known_rank,
    size_of,
    static_integers,
)
from fx_onnx.passes.legalization.resize_64_bit import resize
from fx_onnx.passes.matchers import constant_array, dims

__all__ = ["STEP_17"]


# ---------------------------------------------------------------- shapes and layout


def split(f: NodeBuilder) -> None:
    """Split<num_outputs>(x) → Split(x, sizes).

    Legal because the parts have equal sizes, ⌈n / num_outputs⌉, except the last one, which has the rest.
    """
    node = f.node
    count = f.attribute("num_outputs")
    x = node.inputs[0]
    if count is None or x is None:
        return
    axis = f.attribute("axis", 0)
    size = None if x.shape is None else x.shape[axis]
    if isinstance(size, int):
        each = -(-size // count)
        sizes: Value = f.constant([each] * (count - 1) + [size - each * (count - 1)])
    else:
        total = size_of(f, x, axis)
        part = f.Div(f.Add(total, [count - 1]), [count])
        rest = f.Sub(total, f.Mul(part, [count - 1]))
        sizes = f.Concat(*[part] * (count - 1), rest, axis=0, sizes=(count,))
    f.editor.replace(node, "Split", [x, sizes], {"axis": axis})


def pad(f: NodeBuilder) -> None:
    """Pad(x, pads, value, axes) → Pad(x, pads of all axes, value).

    Legal because an axis that is not listed gets no padding. Where a pooling reads the result, the Pad is computed with
    an additional first axis of size 1, because ONNX Runtime would merge the Pad into the pooling, with other results
    (see pads_before_pooling.py).
    """
    node = f.node
    axes = static_integers(f, 3, "axes are")
    if axes is None:
        return
    x, pads, value = (*node.inputs, None)[:3]
    rank = known_rank(f)
    axes = [axis % rank for axis in axes]
    amounts = static_integers(f, 1, "pads are") if axes != list(range(rank)) else constant_array(pads)
    if amounts is not None:
        full = np.zeros((2, rank), np.int64)
        full[:, axes] = np.reshape(amounts, (2, -1))
        pads = f.constant([int(number) for number in full.reshape(-1)])
        if any(use.node.op_type in ("MaxPool", "AveragePool") for use in node.outputs[0].uses()):
            deeper = [0, *map(int, full[0]), 0, *map(int, full[1])]
            sizes = dims(node.outputs[0])
            padded = f.emit("Pad", [f.Unsqueeze(x, [0]), deeper, value], node.attributes, sizes=sizes and (1, *sizes))
            f.editor.replace(node, "Squeeze", [padded[0], f.constant([0])], {})
            return
    f.editor.replace(node, "Pad", [x, pads] if value is None else [x, pads, value])


def resize_all_axes(f: NodeBuilder) -> None:
    """Resize<axes>(x, scales or sizes) → Resize(x, scales or sizes of all axes).

    Legal because the scale of an axis that is not listed is 1. With antialiasing, it becomes products with matrices,
    which needs static sizes.
    """
    node = f.node
    x, _, scales, sizes = (*node.inputs, None, None, None)[:4]
    if f.attribute("antialias", 0):
        result = None if x is None else resize(f, x)
        if result is None:
            raise UnsupportedNodeError("it resizes integers with antialiasing, or some size is not static")
        f.editor.replace(node, "Identity", [result], {})
        return
    if f.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise UnsupportedNodeError("it keeps the aspect ratio")
    axes = f.attribute("axes")
    if axes is not None and x is not None:
        rank = known_rank(f)
        places = {axis % rank: place for place, axis in enumerate(axes)}
        ones = np.ones(1, np.float32)
        if scales is not None:
            scales = _spread(f, scales, [places.get(axis, f.constant(ones)) for axis in range(rank)])
        if sizes is not None:
            sizes = _spread(f, sizes, [places[axis] if axis in places else size_of(f, x, axis) for axis in range(rank)])
    kept = {name: attr for name, attr in node.attributes.items() if name not in ("axes", "keep_aspect_ratio_policy")}
    inputs = [x, None, scales] if sizes is None else [x, None, scales, sizes]
    f.editor.replace(node, "Resize", inputs, {name: a for name, a in kept.items() if name != "antialias"})


def _spread(f: NodeBuilder, values: Value, parts: list[int | Value]) -> Value:
    """Concatenates elements of ``values``, given by position, and other values of one element."""
    known = constant_array(values)
    arrays = [constant_array(p) if isinstance(p, Value) else None if known is None else known[p : p + 1] for p in parts]
    if (found := [array for array in arrays if array is not None]) and len(found) == len(parts):
        return f.constant(np.concatenate(found))
    items = [f.Slice(values, [p], [p + 1], [0], sizes=(1,)) if isinstance(p, int) else p for p in parts]
    result: Value = f.Concat(*items, axis=0, sizes=(len(items),))
    return result


# ---------------------------------------------------------------- operators that opset 17 does not have


def mish(f: NodeBuilder) -> None:
    """Mish(x) → x * Tanh(Softplus(x)).

    Legal because this is the definition of Mish.
    """
    (x,) = f.node.inputs
    f.editor.replace(f.node, "Mul", [x, f.Tanh(f.Softplus(x))], {})


def bitwise_not(f: NodeBuilder) -> None:
    """BitwiseNot(x) → -1 - x, or max - x for unsigned integers; in INT64 for integers of 8 and 16 bits.

    Legal because integers are two's complements: x + ~x has all bits set. Sub has small integers from opset 14 on.
    """
    (x,) = f.node.inputs
    if f.dtype.bitwidth < 32:
        ones = f.constant(-1 if f.dtype.is_signed() else (1 << f.dtype.bitwidth) - 1, DataType.INT64)
        wide = f.Sub(ones, f.Cast(x, to=int(DataType.INT64)))
        f.editor.replace(f.node, "Cast", [wide], {"to": int(f.dtype)})
        return
    f.editor.replace(f.node, "Sub", [f.constant(np.array(~f.dtype.numpy().type(0))), x], {})


def bitwise(f: NodeBuilder) -> None:
    """BitwiseAnd, BitwiseOr, BitwiseXor → arithmetic on the bits, along a new last axis.

    Legal because the bits of a two's complement are the digits of x modulo 2ⁿ. The bits take n times the memory of the
    result during the computation.
    """
    node = f.node
    count = f.dtype.bitwidth
    first, second = (_bits(f, x, count) for x in node.inputs if x is not None)
    if node.op_type == "BitwiseAnd":
        bits = f.Mul(first, second)
    elif node.op_type == "BitwiseOr":
        bits = f.Max(first, second)
    else:
        bits = f.Abs(f.Sub(first, second))
    weights = [1 << place % 32 for place in range(count)]
    if f.dtype.is_signed() or count == 64:
        weights[-1] = -weights[-1]
    if count < 64:
        total = f.ReduceSum(f.Mul(bits, weights), [-1], keepdims=0)
    else:  # two sums of 32 bits, because ONNX Runtime's ReduceSum of INT64 is exact up to 2⁵³
        halves = f.emit("Split", [f.Mul(bits, weights), [32, 32]], {"axis": -1}, outputs=2)
        low, high = (f.ReduceSum(half, [-1], keepdims=0) for half in halves)
        total = f.Add(f.Mul(high, 1 << 32), low)
    f.editor.replace(node, "Cast", [total], {"to": int(f.dtype)})


def _bits(f: NodeBuilder, x: Value, count: int) -> Value:
    """Returns the bits of x along a new last axis, as INT64. No intermediate number leaves the range of INT64."""
    wide = f.Unsqueeze(f.Cast(x, to=int(DataType.INT64)), [-1])
    place = np.arange(count)
    powers = 2 ** np.minimum(place, 62)
    shifted = f.Div(f.Sub(wide, f.Mod(wide, f.constant(powers))), f.constant(powers))
    if count == 64:
        halves = np.where(place == 63, 2, 1)
        shifted = f.Div(f.Sub(shifted, f.Mod(shifted, f.constant(halves))), f.constant(halves))
    bits: Value = f.Mod(shifted, [2])
    return bits


def col2im(f: NodeBuilder) -> None:
    """Col2Im(x) → ConvTranspose(Reshape(x), identity kernel).

    Legal because a transposed convolution with a group for each channel, and a kernel that copies each position of a
    block to its place, adds the blocks at their positions in the image.
    """
    node = f.node
    x = node.inputs[0]
    image, block = static_integers(f, 1, "image sizes are"), static_integers(f, 2, "block sizes are")
    channels = None if node.outputs[0].shape is None else node.outputs[0].shape[1]
    if x is None or image is None or block is None or not isinstance(channels, int):
        raise UnsupportedNodeError("its number of channels is not static")
    axes, area = len(block), math.prod(block)
    strides, dilations = f.attribute("strides", [1] * axes), f.attribute("dilations", [1] * axes)
    pads = list(f.attribute("pads", [0] * 2 * axes))
    spans = [dilation * (size - 1) + 1 for dilation, size in zip(dilations, block, strict=True)]
    steps = [(image[a] + pads[a] + pads[a + axes] - spans[a]) // strides[a] + 1 for a in range(axes)]
    covered = [(steps[a] - 1) * strides[a] + spans[a] for a in range(axes)]
    unread = [image[a] + pads[a] + pads[a + axes] - covered[a] for a in range(axes)]
    kernel = np.tile(np.eye(area, dtype=f.dtype.numpy()).reshape(area, 1, *block), (channels, *[1] * (axes + 1)))
    columns = f.Reshape(x, [0, channels * area, *steps])
    summed = f.ConvTranspose(columns, kernel, group=channels, strides=list(strides), dilations=list(dilations))
    # Cut or extend to the image by a Pad, because output_padding must be smaller than the stride.
    amounts = [0, 0, *(-begin for begin in pads[:axes]), 0, 0]
    amounts += [rest - end for rest, end in zip(unread, pads[axes:], strict=True)]
    f.editor.replace(node, "Pad", [summed, f.constant(amounts)], {})


def scatter(f: NodeBuilder) -> None:
    """ScatterElements<reduction=max or min>, ScatterND → TopK, a Loop, and ScatterND without reduction.

    Legal because the maximum is associative and commutative: see scatter_reduction.py. The reductions add and mul stay,
    because opset 17 has them.
    """
    if f.attribute("reduction", "none") in ("max", "min"):
        expand_reduction(f)


_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSumSquare",
)  # fmt: skip

STEP_17 = OpsetStep(
    17,
    rewrites={
        **dict.fromkeys(_REDUCTIONS, axes_to_attribute),
        "BitwiseAnd": bitwise,
        "BitwiseNot": bitwise_not,
        "BitwiseOr": bitwise,
        "BitwiseXor": bitwise,
        "Col2Im": col2im,
        "Mish": mish,
        "Pad": pad,
        "Resize": resize_all_axes,
        "ScatterElements": scatter,
        "ScatterND": scatter,
        "Split": split,
    },
)
