"""Legalization of convolutions and pooling; of float64 by gathered windows, where a runtime has no kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import rank_of
from fx_onnx.passes.legalization.table import WIDE, legalizes
from fx_onnx.passes.matchers import producer_of
from fx_onnx.passes.rules import DeclinedError, Result

_OTHER_FORM = "its kernel is dynamic, or an attribute chooses the padding"


# ---------------------------------------------------------------- float64 by gathered windows


@legalizes("GlobalAveragePool(x)", "GlobalMaxPool(x)", lacks=WIDE)
def reduce_spatial_axes(f: NodeBuilder, node: ir.Node, x: Value) -> Result:
    """GlobalAveragePool(x), GlobalMaxPool → ReduceMean, ReduceMax over all spatial axes.

    Legal because this is the definition.
    """
    reduce = f.ReduceMean if node.op_type == "GlobalAveragePool" else f.ReduceMax
    return reduce(x, list(range(2, rank_of(x))), keepdims=1)


def _windows(
    f: NodeBuilder, x: Value, kernel: Sequence[int], pads: Sequence[int], strides: Sequence[int] | None = None
) -> Value:
    """Gathers the windows of x: each spatial axis becomes two, the position of the window and the position in it."""
    count = len(kernel)
    strides = strides or f.attribute("strides", [1] * count)
    steps = f.attribute("dilations", [1] * count)
    if any(pads):
        x = f.Pad(x, list(pads), 0.0, list(range(2, count + 2)))
    for index in reversed(range(count)):
        axis, size = index + 2, kernel[index]
        span = (size - 1) * steps[index] + 1
        length = f.Shape(x, start=axis, end=axis + 1)
        last = f.Squeeze(f.Sub(length, [span - 1]), [0])
        starts = f.Range(np.array(0), last, np.array(strides[index]))
        inside = np.arange(size, dtype=np.int64).reshape(1, size) * steps[index]
        x = f.Gather(x, f.Add(f.Unsqueeze(starts, [1]), inside), axis=axis)
    return x


def _weight(f: NodeBuilder) -> tuple[Value, int | Value, int | Value, list[int]]:
    """Returns the weight of a convolution, its two first sizes, and the sizes of its kernel.

    The first sizes are numbers, or 1-D tensors with one element if they are dynamic.

    Raises:
        DeclinedError: its kernel is dynamic, or ``auto_pad`` chooses the padding.
    """
    weight = f.node.inputs[1]
    cast = producer_of(weight, "Cast")
    shaped = cast.inputs[0] if weight is not None and weight.shape is None and cast is not None else weight
    if weight is None or shaped is None or shaped.shape is None or _has_auto_pad(f):
        raise DeclinedError(_OTHER_FORM)
    sizes = [dim if isinstance(dim, int) else None for dim in shaped.shape]
    kernel = [size for size in sizes[2:] if size is not None]
    if len(kernel) != len(sizes) - 2 or not kernel:
        raise DeclinedError(_OTHER_FORM)
    first, second = (f.Shape(weight, start=i, end=i + 1) if size is None else size for i, size in enumerate(sizes[:2]))
    return weight, first, second, kernel


def _times(f: NodeBuilder, size: int | Value, factor: int) -> int | Value:
    """Returns a size times a static factor."""
    if isinstance(size, int):
        return size * factor
    return size if factor == 1 else f.Mul(size, [factor])


def _part(f: NodeBuilder, size: int | Value, count: int) -> int | Value:
    """Returns the size of one of ``count`` equal parts."""
    if isinstance(size, int):
        return size // count
    return size if count == 1 else f.Div(size, [count])


def _sizes(f: NodeBuilder, *sizes: int | Value) -> list[int] | Value:
    """Returns the sizes as a shape: a list if all are numbers, or else a tensor."""
    numbers = [size for size in sizes if isinstance(size, int)]
    if len(numbers) == len(sizes):
        return numbers
    return f.Concat(*([size] if isinstance(size, int) else size for size in sizes), axis=0)


def _contracted(
    f: NodeBuilder, windows: Value, weight: Value, sizes: tuple[int | Value, int | Value], order: str, count: int
) -> Value:
    """Contracts the windows with the weights, group by group, in one Einsum, and adds the bias.

    Args:
        f: the node builder.
        windows: (batch, channels, then for each spatial axis the position of the window and the position in it).
        weight: (group, then the axes that ``order`` names, then the kernel).
        sizes: the input channels of one group, and the output channels of all groups.
        order: the letters of the weight's axes after the group: c for input channels, m for output channels.
        count: the number of spatial axes.
    """
    group = f.attribute("group", 1)
    places, inside = "uvw"[:count], "xyz"[:count]
    pairs = "".join(f"{a}{b}" for a, b in zip(places, inside, strict=True))
    batch = f.Shape(windows, start=0, end=1)
    grouped = f.Concat(batch, _sizes(f, group, sizes[0]), f.Shape(windows, start=2), axis=0)
    equation = f"ngc{pairs},g{order}{inside}->ngm{places}"
    result = f.Einsum(f.Reshape(windows, grouped), weight, equation=equation)
    spatial = f.Shape(result, start=3)
    result = f.Reshape(result, f.Concat(batch, _sizes(f, sizes[1]), spatial, axis=0))
    if len(f.node.inputs) > 2 and f.node.inputs[2] is not None:
        result = f.Add(result, f.Unsqueeze(f.node.inputs[2], [0, *range(2, count + 2)]))
    return result


def _has_auto_pad(f: NodeBuilder) -> bool:
    return f.attribute("auto_pad", "NOTSET") not in ("NOTSET", b"NOTSET")


@legalizes("Conv(x, ...)", lacks=WIDE)
def convolve_windows(f: NodeBuilder, x: Value) -> Result:
    """Conv(x, w) → the windows of x times the weights, summed.

    Legal because this is the definition.
    """
    weight, out, per_group, kernel = _weight(f)
    group = f.attribute("group", 1)
    windows = _windows(f, x, kernel, f.attribute("pads", [0] * 2 * len(kernel)))
    grouped = f.Reshape(weight, _sizes(f, group, _part(f, out, group), per_group, *kernel))
    return _contracted(f, windows, grouped, (per_group, out), "mc", len(kernel))


@legalizes("ConvTranspose(x, ...)", lacks=WIDE)
def convolve_spread_elements(f: NodeBuilder, x: Value) -> Result:
    """ConvTranspose(x, w) → the convolution of x, with zeros between its elements, with the mirrored weights.

    Legal because each element adds the weights times itself to its window.
    """
    weight, into, per_group, kernel = _weight(f)
    if "output_shape" in f.node.attributes:
        return _OTHER_FORM
    group, count = f.attribute("group", 1), len(kernel)
    strides, pads = f.attribute("strides", [1] * count), f.attribute("pads", [0] * 2 * count)
    steps, more = f.attribute("dilations", [1] * count), f.attribute("output_padding", [0] * count)
    for index, stride in enumerate(strides):
        if stride > 1:
            x = _spread(f, x, index + 2, stride)
    reach = [(size - 1) * step for size, step in zip(kernel, steps, strict=True)]
    begins = [reach[i] - pads[i] for i in range(count)]
    ends = [reach[i] - pads[count + i] + more[i] - (strides[i] - 1) for i in range(count)]
    part = _part(f, into, group)
    mirror = list(range(3, 3 + count))
    mirrored = f.Reshape(weight, _sizes(f, group, part, per_group, *kernel))
    mirrored = f.Slice(mirrored, [-1] * count, [-(2**62)] * count, mirror, [-1] * count)
    windows = _windows(f, x, kernel, [*begins, *ends], [1] * count)
    return _contracted(f, windows, mirrored, (part, _times(f, per_group, group)), "cm", count)


def _spread(f: NodeBuilder, x: Value, axis: int, stride: int) -> Value:
    """Inserts stride - 1 zeros after each element along an axis."""
    apart = f.Pad(f.Unsqueeze(x, [axis + 1]), [0, stride - 1], 0.0, [axis + 1])
    before, after = f.Shape(x, end=axis), f.Shape(x, start=axis + 1)
    return f.Reshape(apart, f.Concat(before, [-1], after, axis=0))


@legalizes("AveragePool(x)", lacks=WIDE)
def average_windows(f: NodeBuilder, x: Value) -> Result:
    """AveragePool(x) → the sum over each window, divided by its size, or by its size without padding.

    Legal because this is the definition.
    """
    kernel = f.attribute("kernel_shape")
    pads = f.attribute("pads", [0] * 2 * len(kernel))
    if f.attribute("ceil_mode", 0) or _has_auto_pad(f):
        return _OTHER_FORM
    inside = list(range(3, 2 * len(kernel) + 2, 2))
    total = f.ReduceSum(_windows(f, x, kernel, pads), inside, keepdims=0)
    if f.attribute("count_include_pad", 0) or not any(pads):
        return f.Div(total, float(math.prod(kernel)))
    sizes = f.Concat([1, 1], f.Shape(x, start=2), axis=0)
    ones = f.Expand(1.0, sizes)
    return f.Div(total, f.ReduceSum(_windows(f, ones, kernel, pads), inside, keepdims=0))
