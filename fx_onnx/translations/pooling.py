"""Pooling: MaxPool, AveragePool and global pooling.

If the sizes of the input are known, the windows that ceil_mode adds become pads at the end, whose meaning ONNX
defines exactly. ONNX's own ceil_mode is used for dynamic sizes, and if such a pad would be as large as the kernel, as
with dilation: ONNX Runtime refuses that pad. torch leaves out a window that would start after the input and its left
pad.
"""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx_ir import Value
from torch import Tensor

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.onnx_model import dtypes
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translations._movement import linear_range
from fx_onnx.translations._spatial import over_batch, per_axis, widened_or_double


class Window(NamedTuple):
    """The windows of a pooling: one number for each spatial axis.

    ``ceil_mode_pads`` is the additional pad at the end that replaces ceil_mode.
    """

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    ceil_mode: bool
    ceil_mode_pads: list[int]

    def attributes(self, padding: Sequence[int]) -> dict[str, Any]:
        """Returns the attributes that MaxPool and AveragePool share, with ``padding`` on both sides."""
        ends = [pad + more for pad, more in zip(padding, self.ceil_mode_pads, strict=True)]
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
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    ceil_mode: bool,
) -> Window:
    """Returns the windows of a pooling; for static sizes, pads at the end smaller than the kernel replace ceil_mode."""
    kernel, steps, pads = per_axis(kernel_size, axes), per_axis(dilation, axes), per_axis(padding, axes)
    strides = per_axis(stride, axes) if stride else kernel
    ceil_mode_pads = [0] * axes
    known = [size for size in sizes[-axes:] if isinstance(size, int)]
    if ceil_mode and len(known) == axes:
        more = list(map(_ceil_mode_pad, known, kernel, strides, pads, steps))
        if all(map(operator.lt, map(operator.add, pads, more), kernel)):
            ceil_mode, ceil_mode_pads = False, more
    return Window(kernel, strides, pads, steps, ceil_mode, ceil_mode_pads)


def _ceil_mode_pad(size: int, kernel: int, stride: int, pad: int, dilation: int) -> int:
    """Returns how far the last window of ceil_mode extends beyond the padded input."""
    reach = dilation * (kernel - 1) + 1
    last = math.ceil((size + 2 * pad - reach) / stride)
    if last * stride >= size + pad:
        last -= 1
    return max(0, last * stride + reach - (size + 2 * pad))


# ---------------------------------------------------------------- maxima


def _max_pool(axes: int) -> Callable[..., Value]:
    def aten_max_pool(
        op: Emitter,
        self: Value,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = (),
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
    ) -> Value:
        """Emits MaxPool; integer dtypes that it does not admit are computed in float64, which is exact up to 2**53."""
        window = _window(op.sizes(self), axes, kernel_size, stride, padding, dilation, ceil_mode)
        attributes = window.attributes(window.padding)
        result = over_batch(op, widened_or_double(op, "MaxPool", self), axes, lambda x: op.MaxPool(x, **attributes))
        return _without_elements(op, op.cast(result, op.out_dtype), op.sizes(self), window)

    return aten_max_pool


def _max_pool_with_indices(axes: int) -> Callable[..., tuple[Value, Value]]:
    def aten_max_pool_with_indices(
        op: Emitter,
        self: Value,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = (),
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
    ) -> tuple[Value, Value]:
        """Emits MaxPool with indices into each flattened plane."""
        window = _window(op.sizes(self), axes, kernel_size, stride, padding, dilation, ceil_mode)
        return _max_and_indices(op, self, axes, window)

    return aten_max_pool_with_indices


def _max_and_indices(op: Emitter, self: Value, axes: int, window: Window) -> tuple[Value, Value]:
    """Emits MaxPool with indices.

    ONNX counts an index through the whole tensor, torch within one plane, so the result is the index modulo the size of
    the plane.
    """
    sizes = op.sizes(self)
    batched = len(sizes) == axes + 2
    x = widened_or_double(op, "MaxPool", self if batched else op.unsqueeze(self, 0))
    values, indices = op.MaxPool(x, **window.attributes(window.padding), outputs=2)
    if not all(isinstance(size, int) and size == 1 for size in sizes[:-axes]):
        indices = op.Mod(indices, op.shape([math.prod(sizes[-axes:])]))
    if not batched:
        values, indices = op.squeeze(values, 0), op.squeeze(indices, 0)
    return _without_elements(op, op.cast(values, op.out_dtype), sizes, window), indices


def _without_elements(op: Emitter, maxima: Value, sizes: Sequence[Size], window: Window) -> Value:
    """Emits the maximum of the windows that lie wholly in the padding, which is minus infinity or the lowest integer.

    ONNX Runtime starts at the lowest finite number. Such windows exist only where an axis is shorter than the dilation:
    the others that begin before the axis reach its first elements, and torch has none that begins after it.
    """
    axes, dtype = len(window.kernel), op.out_dtype
    lowest = -math.inf if dtypes.is_float(dtype) else int(np.iinfo(dtype.numpy()).min)
    for axis, (size, count) in enumerate(zip(sizes[-axes:], op.out_sizes[-axes:], strict=True)):
        step, pad = window.dilation[axis], window.padding[axis]
        if not pad or step == 1 or (isinstance(size, int) and size >= step):
            continue
        first = linear_range(op, count, -pad, window.stride[axis])
        outside = op.And(op.Less(first, 0), op.GreaterOrEqual(op.Mod(first, step), size))
        maxima = op.Where(op.unsqueeze(outside, *range(1, axes - axis)), op.constant(lowest, dtype), maxima)
    return maxima


for _axes, _target in enumerate((aten.max_pool1d, aten.max_pool2d, aten.max_pool3d), 1):
    translates(_target.default)(_max_pool(_axes))
for _axes, _target in enumerate(
    (aten.max_pool1d_with_indices, aten.max_pool2d_with_indices, aten.max_pool3d_with_indices), 1
):
    translates(_target.default)(_max_pool_with_indices(_axes))


# ---------------------------------------------------------------- means


def _avg_pool(axes: int) -> Callable[..., Value]:
    def aten_avg_pool(
        op: Emitter,
        self: Value,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = (),
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        """Emits AveragePool; with divisor_override, the mean times the window's size gives the sum."""
        window = _window(op.sizes(self), axes, kernel_size, stride, padding, 1, ceil_mode)
        x = widened_or_double(op, "AveragePool", self)
        if divisor_override is not None:
            return _sum_over(op, self, x, window, divisor_override)
        result = over_batch(
            op, op.with_sizes(x, op.sizes(self)), axes, lambda x: _mean(op, x, window, count_include_pad)
        )
        return op.cast(result, op.out_dtype)

    return aten_avg_pool


def _mean(op: Emitter, x: Value, window: Window, count_include_pad: bool) -> Value:
    """Emits AveragePool.

    ONNX counts either all pads or none, but torch counts its own pads and not those of ceil_mode. In that case,
    torch's pads become zeros in the input.
    """
    padded, axes = any(window.padding), len(window.kernel)
    if not padded or not count_include_pad or not (any(window.ceil_mode_pads) or window.ceil_mode):
        counted = 1 if padded and count_include_pad else None
        mean: Value = op.AveragePool(x, **window.attributes(window.padding), count_include_pad=counted)
        return mean
    zeros = [0, 0, *window.padding]
    result: Value = op.AveragePool(op.Pad(x, [*zeros, *zeros]), **window.attributes([0] * axes))
    if not window.ceil_mode:
        return result
    # ONNX may start a window in the zeros on the right.
    ends = op.shape(op.out_sizes[-axes:])
    inside: Value = op.Slice(result, [0] * axes, ends, [axis + 2 for axis in range(axes)])
    return inside


def _sum_over(op: Emitter, self: Value, x: Value, window: Window, divisor: int) -> Value:
    """Emits AveragePool that counts all pads, times the window's size, divided by the divisor; integers truncate."""
    axes, sizes = len(window.kernel), op.sizes(self)
    padding, total = window.padding, math.prod(window.kernel)
    if window.ceil_mode:  # the sizes are dynamic: the pads are computed at run time
        ends = [
            (out - 1) * stride + kernel - size - pad
            for out, stride, kernel, size, pad in zip(
                op.out_sizes[-axes:], window.stride, window.kernel, sizes[-axes:], padding, strict=True
            )
        ]
        rest = [0] * (len(sizes) - axes)
        x = op.Pad(x, op.shape([*rest, *padding, *rest, *ends]))
        padding, window = [0] * axes, window._replace(ceil_mode=False)
    attributes = window.attributes(padding)
    mean = over_batch(op, op.with_sizes(x, sizes), axes, lambda x: op.AveragePool(x, **attributes, count_include_pad=1))
    if dtypes.is_integer(op.out_dtype):
        whole = op.cast(op.Round(op.Mul(mean, total)), op.out_dtype)
        truncated: Value = op.Div(whole, divisor)
        return truncated
    return op.cast(op.Mul(mean, total / divisor), op.out_dtype)


for _axes, _target in enumerate((aten.avg_pool1d, aten.avg_pool2d, aten.avg_pool3d), 1):
    translates(_target.default)(_avg_pool(_axes))


# ---------------------------------------------------------------- adaptive pooling


def _divides_evenly(axes: int) -> Callable[..., bool]:
    def is_supported(self: Tensor, output_size: Sequence[Size]) -> bool:
        sizes = self.shape[-axes:]
        return all(map(_axis_divides_evenly, sizes, output_size))

    return is_supported


def _axis_divides_evenly(size: Size, out: Size) -> bool:
    """Returns whether ``size`` is a known multiple of ``out``, or known to equal it."""
    size, out = symbolic_sizes.static(size), symbolic_sizes.static(out)
    if symbolic_sizes.same_size(size, out):
        return True
    return isinstance(size, int) and isinstance(out, int) and out > 0 and size > 0 and size % out == 0


def _is_global(output_size: Sequence[Size]) -> bool:
    return all(isinstance(size, int) and size == 1 for size in map(symbolic_sizes.static, output_size))


def _equal_windows(op: Emitter, self: Value, output_size: Sequence[Size]) -> Window:
    """Returns adjacent windows of equal sizes; an axis that keeps its size has windows of one element."""
    axes = len(output_size)
    kernel = [
        size // out if isinstance(size, int) and isinstance(out, int) else 1
        for size, out in zip(op.sizes(self)[-axes:], map(symbolic_sizes.static, output_size), strict=True)
    ]
    return Window(kernel, kernel, [0] * axes, [1] * axes, False, [0] * axes)


def _is_global_or_divides_evenly(axes: int) -> Callable[..., bool]:
    divides = _divides_evenly(axes)
    return lambda self, output_size: _is_global(output_size) or divides(self, output_size)


def _adaptive_avg_pool(axes: int) -> Callable[..., Value]:
    def aten_adaptive_avg_pool(op: Emitter, self: Value, output_size: Sequence[Size]) -> Value:
        """Emits AveragePool for windows that divide the input evenly; GlobalAveragePool or ReduceMean for size 1."""
        if not _is_global(output_size):
            attributes = _equal_windows(op, self, output_size).attributes([0] * axes)
            x = widened_or_double(op, "AveragePool", self)
            result = over_batch(op, x, axes, lambda x: op.AveragePool(x, **attributes))
        elif op.rank(self) == axes + 2 and widened_or_double(op, "GlobalAveragePool", self) is self:
            result = op.GlobalAveragePool(self)
        else:
            result = op.ReduceMean(self, list(range(-axes, 0)), keepdims=1)
        return op.cast(result, op.out_dtype)

    return aten_adaptive_avg_pool


def _adaptive_max_pool(axes: int) -> Callable[..., tuple[Value, Value]]:
    def aten_adaptive_max_pool(op: Emitter, self: Value, output_size: Sequence[int]) -> tuple[Value, Value]:
        """Emits MaxPool with indices for windows that divide the input evenly."""
        return _max_and_indices(op, self, axes, _equal_windows(op, self, output_size))

    return aten_adaptive_max_pool


for _axes, _target in enumerate((aten.adaptive_avg_pool1d, aten.adaptive_avg_pool2d, aten.adaptive_avg_pool3d), 1):
    translates(_target.default, supports=_is_global_or_divides_evenly(_axes))(_adaptive_avg_pool(_axes))
for _axes, _target in enumerate((aten._adaptive_avg_pool2d, aten._adaptive_avg_pool3d), 2):
    translates(_target.default, supports=_is_global_or_divides_evenly(_axes))(_adaptive_avg_pool(_axes))
for _axes, _target in enumerate((aten.adaptive_max_pool1d, aten.adaptive_max_pool2d, aten.adaptive_max_pool3d), 1):
    translates(_target.default, supports=_divides_evenly(_axes))(_adaptive_max_pool(_axes))
