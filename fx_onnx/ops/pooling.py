"""ATen pooling over fixed windows → ONNX MaxPool and AveragePool.

Where the input's sizes are known, windows that ceil_mode adds are said as pads at the end, whose meaning is fixed; ONNX's
own ceil_mode is left to the sizes that are not. torch never begins a window beyond the input and its left pad.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from onnx_ir import DataType, Value

from fx_onnx import dtypes
from fx_onnx.emitter import Emitter
from fx_onnx.ops._spatial import computable, over_batch, per_axis
from fx_onnx.symbols import Size
from fx_onnx.table import translates

aten = torch.ops.aten


class Window(NamedTuple):
    """Where the windows of a pooling lie, a number per spatial axis; ``beyond``: what ceil_mode adds after the pad."""

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    ceil_mode: bool
    beyond: list[int]

    def attributes(self, padding: Sequence[int]) -> dict[str, object]:
        """The attributes that MaxPool and AveragePool share, with ``padding`` on both sides."""
        ends = [pad + more for pad, more in zip(padding, self.beyond, strict=True)]
        return {
            "kernel_shape": self.kernel,
            "strides": self.stride,
            "pads": [*padding, *ends],
            "dilations": self.dilation if any(step != 1 for step in self.dilation) else None,
            "ceil_mode": 1 if self.ceil_mode else None,
        }


def _window(
    sizes: Sequence[Size],
    axes: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    ceil_mode: bool,
) -> Window:
    kernel, steps, pads = per_axis(kernel_size, axes), per_axis(dilation, axes), per_axis(padding, axes)
    strides = per_axis(stride, axes) if stride else kernel
    beyond = [0] * axes
    known = [size for size in sizes[-axes:] if isinstance(size, int)]
    if ceil_mode and len(known) == axes:
        ceil_mode = False
        beyond = list(map(_beyond, known, kernel, strides, pads, steps))
    return Window(kernel, strides, pads, steps, ceil_mode, beyond)


def _beyond(size: int, kernel: int, stride: int, pad: int, dilation: int) -> int:
    """How far the last window of ceil_mode reaches over the padded input."""
    reach = dilation * (kernel - 1) + 1
    last = math.ceil((size + 2 * pad - reach) / stride)
    if last * stride >= size + pad:
        last -= 1
    return max(0, last * stride + reach - (size + 2 * pad))


# ---------------------------------------------------------------- maxima


@translates(aten.max_pool1d.default, aten.max_pool2d.default, aten.max_pool3d.default)
def aten_max_pool(
    op: Emitter,
    self: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> Value:
    """The largest value of each window; integers that MaxPool lacks go through float64, exact up to 2**53."""
    axes = _axes(op, kernel_size, self)
    window = _window(op.sizes(self), axes, kernel_size, stride, padding, dilation, ceil_mode)
    attributes = window.attributes(window.padding)
    result = over_batch(op, computable(op, "MaxPool", self), axes, lambda x: op.MaxPool(x, **attributes))
    return op.cast(result, op.out_dtype)


@translates(
    aten.max_pool1d_with_indices.default, aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default
)
def aten_max_pool_with_indices(
    op: Emitter,
    self: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> tuple[Value, Value]:
    """The largest value of each window, and where it lies in its own flattened plane."""
    axes = _axes(op, kernel_size, self)
    window = _window(op.sizes(self), axes, kernel_size, stride, padding, dilation, ceil_mode)
    return _max_pool_with_indices(op, self, axes, window)


def _max_pool_with_indices(op: Emitter, self: Value, axes: int, window: Window) -> tuple[Value, Value]:
    """ONNX counts through the whole tensor, torch within one plane of it: the remainder by the plane's size."""
    batched = op.rank(self) == axes + 2
    sizes = op.sizes(self)
    x = computable(op, "MaxPool", self if batched else op.unsqueeze(self, 0))
    values, indices = op.MaxPool(x, **window.attributes(window.padding), outputs=2)
    plane = math.prod(sizes[-axes:])
    indices = op.Mod(indices, plane)
    if not batched:
        values, indices = op.squeeze(values, 0), op.squeeze(indices, 0)
    return op.cast(values, op.out_dtype), indices


def _axes(op: Emitter, kernel_size: Sequence[int], self: Value) -> int:
    """The number of spatial axes: an ``int[n]`` argument may be one number, and self may lack its batch axis."""
    return len(kernel_size) if len(kernel_size) > 1 else op.rank(self) - 2 if op.rank(self) != 2 else 1
