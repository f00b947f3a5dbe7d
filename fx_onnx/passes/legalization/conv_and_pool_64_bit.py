"""Convolution and pooling by gathered windows, for float64, for which ONNX Runtime has no kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx_ir import Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import producer_of

__all__ = ["average_pool", "conv", "conv_transpose", "global_average_pool", "global_max_pool"]


def global_average_pool(f: NodeBuilder, x: Value) -> Value | None:
    """Expands GlobalAveragePool: the mean over all spatial axes."""
    return None if x.shape is None else f.ReduceMean(x, list(range(2, len(x.shape))), keepdims=1)


def global_max_pool(f: NodeBuilder, x: Value) -> Value | None:
    """Expands GlobalMaxPool: the maximum over all spatial axes."""
    return None if x.shape is None else f.ReduceMax(x, list(range(2, len(x.shape))), keepdims=1)


def _windows(
    f: NodeBuilder, x: Value, kernel: Sequence[int], pads: Sequence[int], strides: Sequence[int] | None = None
) -> Value:
    """Gathers the windows of x: each spatial axis becomes two, the position of the window and the position in it."""
    count = len(kernel)
    strides = strides or f.attribute("strides", [1] * count)
    steps = f.attribute("dilations", [1] * count)
    if any(pads):
        x = f.Pad(x, list(pads), 0.0, list(range(2, count + 2)))
    for place in reversed(range(count)):
        axis, size = place + 2, kernel[place]
        span = (size - 1) * steps[place] + 1
        length = f.Shape(x, start=axis, end=axis + 1)
        last = f.Squeeze(f.Sub(length, [span - 1]), [0])
        starts = f.Range(np.array(0), last, np.array(strides[place]))
        inside = np.arange(size, dtype=np.int64).reshape(1, size) * steps[place]
        x = f.Gather(x, f.Add(f.Unsqueeze(starts, [1]), inside), axis=axis)
    return x


@dataclass(frozen=True)
class _Weight:
    """The weight of a convolution: (first, second, then the kernel), where the kernel is static.

    The two sizes are numbers, or 1-D tensors with one element if they are dynamic.
    """

    value: Value
    first: int | Value
    second: int | Value
    kernel: list[int]


def _weight(f: NodeBuilder) -> _Weight | None:
    """Returns the weight of a convolution; None if its kernel is dynamic or ``auto_pad`` chooses the padding."""
    weight = f.node.inputs[1]
    cast = producer_of(weight, "Cast")
    shaped = cast.inputs[0] if weight is not None and weight.shape is None and cast is not None else weight
    if weight is None or shaped is None or shaped.shape is None or _has_auto_pad(f):
        return None
    sizes = [dim if isinstance(dim, int) else None for dim in shaped.shape]
    kernel = [size for size in sizes[2:] if size is not None]
    if len(kernel) != len(sizes) - 2 or not kernel:
        return None
    first, second = (f.Shape(weight, start=i, end=i + 1) if size is None else size for i, size in enumerate(sizes[:2]))
    return _Weight(weight, first, second, kernel)


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


def conv(f: NodeBuilder, x: Value) -> Value | None:
    """Expands Conv: the windows of x times the weights, summed."""
    weight = _weight(f)
    if weight is None:
        return None
    out, each, kernel = weight.first, weight.second, weight.kernel
    group = f.attribute("group", 1)
    windows = _windows(f, x, kernel, f.attribute("pads", [0] * 2 * len(kernel)))
    grouped = f.Reshape(weight.value, _sizes(f, group, _part(f, out, group), each, *kernel))
    return _contracted(f, windows, grouped, (each, out), "mc", len(kernel))


def conv_transpose(f: NodeBuilder, x: Value) -> Value | None:
    """Expands ConvTranspose: the convolution of x, with zeros between its elements, with the mirrored weights."""
    weight = _weight(f)
    if weight is None or "output_shape" in f.node.attributes:
        return None
    into, each, kernel = weight.first, weight.second, weight.kernel
    group, count = f.attribute("group", 1), len(kernel)
    strides, pads = f.attribute("strides", [1] * count), f.attribute("pads", [0] * 2 * count)
    steps, more = f.attribute("dilations", [1] * count), f.attribute("output_padding", [0] * count)
    for place, stride in enumerate(strides):
        if stride > 1:
            x = _spread(f, x, place + 2, stride)
    reach = [(size - 1) * step for size, step in zip(kernel, steps, strict=True)]
    begins = [reach[i] - pads[i] for i in range(count)]
    ends = [reach[i] - pads[count + i] + more[i] - (strides[i] - 1) for i in range(count)]
    part = _part(f, into, group)
    mirror = list(range(3, 3 + count))
    mirrored = f.Reshape(weight.value, _sizes(f, group, part, each, *kernel))
    mirrored = f.Slice(mirrored, [-1] * count, [-(2**62)] * count, mirror, [-1] * count)
    windows = _windows(f, x, kernel, [*begins, *ends], [1] * count)
    return _contracted(f, windows, mirrored, (part, _times(f, each, group)), "cm", count)


def _spread(f: NodeBuilder, x: Value, axis: int, stride: int) -> Value:
    """Inserts stride - 1 zeros after each element along an axis."""
    apart = f.Pad(f.Unsqueeze(x, [axis + 1]), [0, stride - 1], 0.0, [axis + 1])
    before, after = f.Shape(x, end=axis), f.Shape(x, start=axis + 1)
    return f.Reshape(apart, f.Concat(before, [-1], after, axis=0))


def average_pool(f: NodeBuilder, x: Value) -> Value | None:
    """Expands AveragePool: the sum over each window, divided by its size, or by its size without padding."""
    kernel = f.attribute("kernel_shape")
    pads = f.attribute("pads", [0] * 2 * len(kernel))
    if f.attribute("ceil_mode", 0) or _has_auto_pad(f):
        return None
    inside = list(range(3, 2 * len(kernel) + 2, 2))
    total = f.ReduceSum(_windows(f, x, kernel, pads), inside, keepdims=0)
    if f.attribute("count_include_pad", 0) or not any(pads):
        return f.Div(total, float(math.prod(kernel)))
    sizes = f.Concat([1, 1], f.Shape(x, start=2), axis=0)
    ones = f.Expand(1.0, sizes)
    return f.Div(total, f.ReduceSum(_windows(f, ones, kernel, pads), inside, keepdims=0))
