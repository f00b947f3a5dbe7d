"""Decompositions of upsampling: reads along each axis, or matrix products with the weights of a filter."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fx_onnx.decompositions._axis_products import matmul_along
from fx_onnx.decompositions._cubic_kernel import cubic_from_1_to_2, cubic_to_1
from fx_onnx.decompositions._sizes import at_least
from fx_onnx.decompositions.registry import aten, decomposes

Factor = float | None
Kernel = Callable[[Tensor], Tensor]
# (size, out, align_corners, factor, dtype) → the weights of an axis, of shape (size, out)
WeightFunction = Callable[[int, int, bool, Factor, torch.dtype], Tensor]


# ---------------------------------------------------------------- by size or factor


def _result_sizes(input: Tensor, output_size: Sequence[int] | None, factors: Sequence[float] | None) -> list[int]:
    """Returns the given sizes, or floor(size * factor) for each axis."""
    if output_size is not None:
        return list(output_size)
    floor: Callable[[float], int] = torch.sym_int
    return [floor(size * factor) for size, factor in zip(input.shape[2:], factors or (), strict=True)]


def _nearest_vec(target: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns the decomposition of the vec overload, which takes sizes or factors, for nearest-neighbour modes."""

    def upsample_vec(input: Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None) -> Tensor:
        """Upsamples to the given sizes, or by the given factors."""
        return target(input, _result_sizes(input, output_size, scale_factors), *(scale_factors or ()))

    return upsample_vec


def _smooth_vec(target: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns the decomposition of the vec overload, which takes sizes or factors, for interpolating modes."""

    def upsample_vec(
        input: Tensor, output_size: Sequence[int] | None, align_corners: bool, scale_factors: Sequence[float] | None
    ) -> Tensor:
        """Upsamples to the given sizes, or by the given factors."""
        outs = _result_sizes(input, output_size, scale_factors)
        return target(input, outs, align_corners, *(scale_factors or ()))

    return upsample_vec


for _target in (
    aten.upsample_nearest1d,
    aten.upsample_nearest2d,
    aten.upsample_nearest3d,
    aten._upsample_nearest_exact1d,
    aten._upsample_nearest_exact2d,
    aten._upsample_nearest_exact3d,
):
    decomposes(_target.vec)(_nearest_vec(_target.default))
for _target in (
    aten.upsample_linear1d,
    aten.upsample_bilinear2d,
    aten.upsample_trilinear3d,
    aten.upsample_bicubic2d,
    aten._upsample_bilinear2d_aa,
    aten._upsample_bicubic2d_aa,
):
    decomposes(_target.vec)(_smooth_vec(_target.default))


# ---------------------------------------------------------------- nearest


def _nearest(self: Tensor, output_size: Sequence[int], factors: Sequence[Factor], exact: bool) -> Tensor:
    """Reads each axis at floor(position / factor), or at the element with the nearest center if ``exact``.

    The positions use ATen's own arithmetic, so that they round as torch's do.
    """
    work = torch.float64 if self.dtype == torch.float64 else torch.float32
    for axis, (out, factor) in enumerate(zip(output_size, factors, strict=True), 2):
        size = self.shape[axis]
        places = torch.arange(out, dtype=work, device=self.device)
        length, parts = (size, out) if factor is None else (1.0 / factor, 1)
        step = torch.full((), length, dtype=work) / parts
        source = ((places + 0.5) * step - 0.5) + 0.5 if exact else places * step
        self = self.index_select(axis, source.floor().to(torch.int64).clamp(max=size - 1))
    return self


@decomposes(aten.upsample_nearest1d.default)
def upsample_nearest1d(self: Tensor, output_size: Sequence[int], scales: Factor = None) -> Tensor:
    """Returns the element at floor(position / factor)."""
    return _nearest(self, output_size, [scales], False)


@decomposes(aten.upsample_nearest2d.default)
def upsample_nearest2d(
    self: Tensor, output_size: Sequence[int], scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """Returns the element at floor(position / factor) along each axis."""
    return _nearest(self, output_size, [scales_h, scales_w], False)


@decomposes(aten.upsample_nearest3d.default)
def upsample_nearest3d(
    self: Tensor, output_size: Sequence[int], scales_d: Factor = None, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """Returns the element at floor(position / factor) along each axis."""
    return _nearest(self, output_size, [scales_d, scales_h, scales_w], False)


@decomposes(aten._upsample_nearest_exact1d.default)
def upsample_nearest_exact1d(self: Tensor, output_size: Sequence[int], scales: Factor = None) -> Tensor:
    """Returns the element with the nearest center."""
    return _nearest(self, output_size, [scales], True)


@decomposes(aten._upsample_nearest_exact2d.default)
def upsample_nearest_exact2d(
    self: Tensor, output_size: Sequence[int], scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """Returns the element with the nearest center along each axis."""
    return _nearest(self, output_size, [scales_h, scales_w], True)


@decomposes(aten._upsample_nearest_exact3d.default)
def upsample_nearest_exact3d(
    self: Tensor, output_size: Sequence[int], scales_d: Factor = None, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """Returns the element with the nearest center along each axis."""
    return _nearest(self, output_size, [scales_d, scales_h, scales_w], True)


# ---------------------------------------------------------------- filters


def _triangle(distance: Tensor) -> Tensor:
    """Returns the triangle filter, which interpolates linearly."""
    return (1 - distance.abs()).clamp(min=0)


def _cubic(a: float) -> Callable[[Tensor], Tensor]:
    """Returns the cubic convolution kernel with the parameter ``a`` as a function of the distance."""

    def kernel(distance: Tensor) -> Tensor:
        x = distance.abs()
        far = torch.where(x < 2, cubic_from_1_to_2(x, a), torch.zeros_like(x))
        return torch.where(x < 1, cubic_to_1(x, a), far)

    return kernel


def _step(size: int, out: int, align_corners: bool, factor: Factor) -> float:
    """Returns the distance, in elements of the input, between two neighbouring positions of the result."""
    if align_corners:
        one_or_none: int = torch.sym_min(out - 1, 1)  # 0 for a result of one element
        return (size - 1) * one_or_none / at_least(out - 1, 1)
    return 1.0 / factor if factor is not None else size / out


def _interpolation_weights(kernel: Kernel, reach: int) -> WeightFunction:
    """Returns a function that computes interpolation weights; a tap beyond the edge of the input reads the edge."""

    def weigh(size: int, out: int, align_corners: bool, factor: Factor, dtype: torch.dtype) -> Tensor:
        step = _step(size, out, align_corners, factor)
        position = torch.arange(out, dtype=dtype)
        source = position * step if align_corners else (position + 0.5) * step - 0.5
        if reach == 1:
            source = source.clamp(0, size - 1)
        first = source.floor() - (reach - 1)
        rows = torch.arange(size, dtype=dtype).unsqueeze(1)
        weights = torch.zeros_like(rows * source)
        for tap in range(2 * reach):
            at = first + tap
            weights = weights + torch.where(rows == at.clamp(0, size - 1), kernel(source - at), 0.0)
        return weights

    return weigh


def _antialiasing_weights(kernel: Kernel, reach: int) -> WeightFunction:
    """Returns a function that computes antialiasing weights: the kernel is stretched by the step, and they sum to 1."""

    def weigh(size: int, out: int, align_corners: bool, factor: Factor, dtype: torch.dtype) -> Tensor:
        step = _step(size, out, align_corners, factor)
        stretch = at_least(step, 1.0)
        center = (torch.arange(out, dtype=dtype) + 0.5) * step
        rows = torch.arange(size, dtype=dtype).unsqueeze(1)
        begin = (center - reach * stretch + 0.5).trunc()
        end = (center + reach * stretch + 0.5).trunc()
        weights = kernel((rows - center + 0.5) / stretch)
        weights = torch.where((rows >= begin) & (rows < end), weights, 0.0)
        return weights / weights.sum(0, keepdim=True)

    return weigh


def _copying(weigh: WeightFunction) -> WeightFunction:
    """Returns a function that computes the same weights, but copies an axis that keeps its size, whatever its factor.

    Source: compute_source_index_and_lambda and the passes of separable_upsample_generic_Nd in UpSampleKernel.cpp.
    """

    def weights(size: int, out: int, align_corners: bool, factor: Factor, dtype: torch.dtype) -> Tensor:
        table = weigh(size, out, align_corners, factor, dtype)
        if factor is None or align_corners:
            return table
        is_copied = torch.full((), size) == torch.full((), out)
        copy = torch.arange(size).unsqueeze(1) == torch.arange(out)
        return torch.where(is_copied, copy.to(dtype), table)

    return weights


def _filter(
    self: Tensor, output_size: Sequence[int], align_corners: bool, factors: Sequence[Factor], weigh: WeightFunction
) -> Tensor:
    """Multiplies each axis by its weights, the last axis first; the sums of uint8 are rounded after each axis."""
    dtype, rank = self.dtype, self.dim()
    work = torch.float64 if dtype in (torch.float64, torch.uint8) else torch.float32
    self = self.to(work)
    for axis in reversed(range(2, rank)):
        weights = weigh(self.shape[axis], output_size[axis - 2], align_corners, factors[axis - 2], work)
        if dtype == torch.uint8:
            self = _uint8_matmul_along(self, axis - rank, weights)
        else:
            self = matmul_along(self, axis - rank, weights)
    return self.to(dtype)


def _uint8_matmul_along(self: Tensor, axis: int, weights: Tensor) -> Tensor:
    """Multiplies in the fixed-point arithmetic of ATen's uint8 kernels: weights of 15 bits, sums rounded half up."""
    bits = torch.log2(32767.5 / weights.max()).floor()
    unit = torch.exp2(bits)
    fixed = (weights * unit).abs().add(0.5).floor() * weights.sign()
    return (matmul_along(self, axis, fixed) / unit + 0.5).floor().clamp(0, 255)


_LINEAR, _CUBIC = _copying(_interpolation_weights(_triangle, 1)), _interpolation_weights(_cubic(-0.75), 2)
_LINEAR_ANTIALIASED, _CUBIC_ANTIALIASED = (
    _copying(_antialiasing_weights(kernel, reach)) for kernel, reach in ((_triangle, 1), (_cubic(-0.5), 2))
)


@decomposes(aten.upsample_linear1d.default)
def upsample_linear1d(self: Tensor, output_size: Sequence[int], align_corners: bool, scales: Factor = None) -> Tensor:
    """Interpolates linearly."""
    return _filter(self, output_size, align_corners, [scales], _LINEAR)


@decomposes(aten.upsample_bilinear2d.default)
def upsample_bilinear2d(
    self: Tensor, output_size: Sequence[int], align_corners: bool, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """Interpolates linearly along both axes."""
    return _filter(self, output_size, align_corners, [scales_h, scales_w], _LINEAR)


@decomposes(aten.upsample_trilinear3d.default)
def upsample_trilinear3d(
    self: Tensor,
    output_size: Sequence[int],
    align_corners: bool,
    scales_d: Factor = None,
    scales_h: Factor = None,
    scales_w: Factor = None,
) -> Tensor:
    """Interpolates linearly along the three axes."""
    return _filter(self, output_size, align_corners, [scales_d, scales_h, scales_w], _LINEAR)


@decomposes(aten.upsample_bicubic2d.default)
def upsample_bicubic2d(
    self: Tensor, output_size: Sequence[int], align_corners: bool, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """Interpolates by cubic convolution with a = -0.75 along both axes."""
    return _filter(self, output_size, align_corners, [scales_h, scales_w], _CUBIC)


@decomposes(aten._upsample_bilinear2d_aa.default)
def upsample_bilinear2d_aa(
    self: Tensor, output_size: Sequence[int], align_corners: bool, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """Applies a triangle filter, which reaches one step to each side, along both axes."""
    return _filter(self, output_size, align_corners, [scales_h, scales_w], _LINEAR_ANTIALIASED)


@decomposes(aten._upsample_bicubic2d_aa.default)
def upsample_bicubic2d_aa(
    self: Tensor, output_size: Sequence[int], align_corners: bool, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """Applies a cubic filter (a = -0.5), which reaches two steps to each side, along both axes."""
    return _filter(self, output_size, align_corners, [scales_h, scales_w], _CUBIC_ANTIALIASED)
