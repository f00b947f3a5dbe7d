"""Legalization of convolutions and pooling; of float64 by gathered windows, where a runtime has no kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import static_integers, with_shape
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import dims, is_read, producer_of
from fx_onnx.passes.rules import DeclinedError, Result

__all__ = [
    "legalize_cast_bias",
    "legalize_columns",
    "legalize_one_spatial_axis",
    "legalize_strided_dilations",
]

_FIRST = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 0, "output_shape": 1}
"""The value of each attribute for the axis that is added."""


# ---------------------------------------------------------------- older opsets


@legalizes("Col2Im(x, image, block)", targets=("tensorrt",))
@legalizes("Col2Im(x, image, block)", until=17)
def legalize_columns(f: NodeBuilder, node: ir.Node, x: Value, image: Value, block: Value) -> Result:
    """Col2Im(x) → ConvTranspose(Reshape(x), identity kernel).

    Legal because a transposed convolution with a group for each channel, and a kernel that copies each position of a
    block to its place, adds the blocks at their positions in the image.
    """
    whole, sizes = static_integers(image, "image sizes are") or [], static_integers(block, "block sizes are") or []
    channels = None if node.outputs[0].shape is None else node.outputs[0].shape[1]
    if not isinstance(channels, int):
        return "its number of channels is not static"
    axes, area = len(sizes), math.prod(sizes)
    strides, dilations = f.attribute("strides", [1] * axes), f.attribute("dilations", [1] * axes)
    pads = list(f.attribute("pads", [0] * 2 * axes))
    spans = [dilation * (size - 1) + 1 for dilation, size in zip(dilations, sizes, strict=True)]
    padded = [whole[a] + pads[a] + pads[a + axes] for a in range(axes)]
    steps = [(padded[a] - spans[a]) // strides[a] + 1 for a in range(axes)]
    unread = [padded[a] - (steps[a] - 1) * strides[a] - spans[a] for a in range(axes)]
    kernel = np.tile(np.eye(area, dtype=f.dtype.numpy()).reshape(area, 1, *sizes), (channels, *[1] * (axes + 1)))
    columns = f.Reshape(x, [0, channels * area, *steps])
    summed = f.ConvTranspose(columns, kernel, group=channels, strides=list(strides), dilations=list(dilations))
    # Cut or extend to the image by a Pad, because output_padding must be smaller than the stride.
    ends = [rest - end for rest, end in zip(unread, pads[axes:], strict=True)]
    return f.Pad(summed, [0, 0, *(-begin for begin in pads[:axes]), 0, 0, *ends])


@legalizes("AveragePool(x)", "MaxPool(x)", until=9)
def pool_without_ceil_mode(f: NodeBuilder, node: ir.Node, x: Value) -> Result:
    """MaxPool<ceil_mode=1>(x), AveragePool<ceil_mode=1> → the same with more padding at the end, for static sizes.

    Legal because padding counts neither for a maximum nor for an average without ``count_include_pad``. Opset 9 has no
    dilations.
    """
    kept: dict[str, Any] = {n: attr for n, attr in node.attributes.items() if n not in ("ceil_mode", "dilations")}
    if any(dilation != 1 for dilation in f.attribute("dilations", [])):
        return "it has dilations"
    if f.attribute("ceil_mode", 0):
        if f.attribute("count_include_pad", 0):
            return "it has ceil_mode and counts the padding"
        kept["pads"] = _ceiled_pads(f)
    return f.emit(node.op_type, [x], kept, outputs=len(node.outputs))


def _ceiled_pads(f: NodeBuilder) -> list[int]:
    kernel = f.attribute("kernel_shape")
    strides, pads = f.attribute("strides", [1] * len(kernel)), list(f.attribute("pads", [0] * 2 * len(kernel)))
    before, after = (dims(value) for value in (f.node.inputs[0], f.node.outputs[0]))
    for index, (size, stride) in enumerate(zip(kernel, strides, strict=True)):
        x, y = (None if sizes is None else sizes[index + 2] for sizes in (before, after))
        if not isinstance(x, int) or not isinstance(y, int):
            raise DeclinedError("it has ceil_mode, and its sizes are not static")
        end = index + len(kernel)
        pads[end] = max(pads[end], (y - 1) * stride + size - x - pads[index])
        if pads[end] >= size:
            raise DeclinedError("it has ceil_mode with a window that has no element")
    return pads


@legalizes("MaxPool(x)", until=7)
def pool_without_indices(node: ir.Node) -> Result:
    """MaxPool(x) with one result → the same.

    Legal because opset 7 does not return the indices of the maxima, and nothing reads them.
    """
    if any(map(is_read, node.outputs[1:])):
        return "its indices are read"
    node.resize_outputs(1)
    return None


# ---------------------------------------------------------------- runtimes


@legalizes(
    "Conv(x, weight, *rest)",
    "ConvTranspose(x, weight, *rest)",
    since=13,
    targets=("mnn",),
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
    given: dict[str, Any] = {name: attr.value for name, attr in node.attributes.items()}
    options = {name: [_FIRST[name], *value] if name in _FIRST else value for name, value in given.items()}
    if "pads" in options:
        before, after = options["pads"]
        options["pads"] = [0, before, 0, after]
    operands = [f.Unsqueeze(x, [2]), f.Unsqueeze(weight, [2]), *rest]
    return f.Squeeze(f.emit(node.op_type, operands, options)[0], [2])


@legalizes("ConvTranspose(x, weight, *rest)", targets=("tensorrt",))
def legalize_strided_dilations(
    f: NodeBuilder, node: ir.Node, x: Value, weight: Value, rest: Sequence[Value | None]
) -> Result:
    """ConvTranspose<strides, dilations>(x, w) → ConvTranspose<strides>(x, w with zeros between its elements).

    Legal because the positions between those of a dilated kernel add nothing. TensorRT for RTX (1.7.1) takes strides or
    dilations, also if they are of different axes.
    """
    steps = f.attribute("dilations", [])
    if all(step == 1 for step in steps) or all(stride == 1 for stride in f.attribute("strides", [])):
        return None
    sizes = (dims(with_shape(f, weight)) or ())[2:]
    if not sizes or not all(isinstance(size, int) for size in sizes):
        return "its kernel is dynamic"
    spread = [axis for axis, step in enumerate(steps) if step > 1]
    apart = [axis + 3 + index for index, axis in enumerate(spread)]
    zeros = f.Pad(f.Unsqueeze(weight, apart), [0] * len(apart) + [steps[axis] - 1 for axis in spread], 0.0, apart)
    whole = f.Reshape(zeros, [0, 0, *(int(size) * step for size, step in zip(sizes, steps, strict=True))])
    ends = [1 - steps[axis] for axis in spread]
    kernel = f.Slice(whole, [0] * len(spread), ends, [axis + 2 for axis in spread])
    options = {name: attr for name, attr in node.attributes.items() if name not in ("dilations", "kernel_shape")}
    return f.emit("ConvTranspose", [x, kernel, *rest], options)[0]


@legalizes("Conv(x, weight, bias)", "ConvTranspose(x, weight, bias)", targets=("tensorrt",), after_casts=True)
def legalize_cast_bias(f: NodeBuilder, node: ir.Node, x: Value, weight: Value, bias: Value) -> Result:
    """Conv(x, w, Cast(b)) → Conv(x, w, Cast(b) + -0.0) for b of float16 or bfloat16; ConvTranspose too.

    Legal because the sum is the number, also if that is 0.0 or -0.0. TensorRT for RTX (1.7.1) fails at a bias that is a
    Cast of an input or of a result, if x and the result of the convolution are cast too.
    """
    cast = producer_of(bias, "Cast")
    given = None if cast is None else cast.inputs[0]
    if given is None or given.is_initializer() or given.dtype not in (DataType.FLOAT16, DataType.BFLOAT16):
        return None
    return f.emit(node.op_type, [x, weight, f.Add(bias, -0.0)], node.attributes)[0]
