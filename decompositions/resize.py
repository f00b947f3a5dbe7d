"""Upsampling as reads along each axis, or as products with the weights of a filter."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fx_onnx.decompositions._axis_products import matmul_along
from fx_onnx.decompositions._sizes import at_least, is_known
from fx_onnx.decompositions.registry import aten, decomposes

Factor = float | None
Kernel = Callable[[Tensor], Tensor]
# (size, out, align_corners, factor, dtype) → the weights of an axis, (size, out)
Weigh = Callable[[int, int, bool, Factor, torch.dtype], Tensor]


# ---------------------------------------------------------------- by size or factor


def _result_sizes(input: Tensor, output_size: Sequence[int] | None, factors: Sequence[float] | None) -> list[int]:
    """The sizes given, or each floor(size * factor)."""
    if output_size is not None:
        return list(output_size)
    floor: Callable[[float], int] = torch.sym_int
    return [floor(size * factor) for size, factor in zip(input.shape[2:], factors or (), strict=True)]


def _nearest_vec(target: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def upsample_vec(input: Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None) -> Tensor:
        """The upsampling to the sizes given, or by the factors."""
        return target(input, _result_sizes(input, output_size, scale_factors), *(scale_factors or ()))

    return upsample_vec


def _smooth_vec(target: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def upsample_vec(
        input: Tensor, output_size: Sequence[int] | None, align_corners: bool, scale_factors: Sequence[float] | None
    ) -> Tensor:
        """The upsampling to the sizes given, or by the factors."""
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
    """Each axis read at floor(place / factor), or where the middle of the place lies, in ATen's own arithmetic."""
    work = torch.float64 if self.dtype == torch.float64 else torch.float32
    for axis, (out, factor) in enumerate(zip(output_size, factors, strict=True), 2):
        size = self.shape[axis]
        places = torch.arange(out, dtype=work, device=self.device)
        step = torch.full((), 1.0 / factor if factor else size, dtype=work) / (1 if factor else out)
        source = ((places + 0.5) * step - 0.5) + 0.5 if exact else places * step
        self = self.index_select(axis, source.floor().to(torch.int64).clamp(max=size - 1))
    return self


@decomposes(aten.upsample_nearest1d.default)
def upsample_nearest1d(self: Tensor, output_size: Sequence[int], scales: Factor = None) -> Tensor:
    """The element at floor(place / factor)."""
    return _nearest(self, output_size, [scales], False)


@decomposes(aten.upsample_nearest2d.default)
def upsample_nearest2d(
    self: Tensor, output_size: Sequence[int], scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """The element at floor(place / factor)."""
    return _nearest(self, output_size, [scales_h, scales_w], False)


@decomposes(aten.upsample_nearest3d.default)
def upsample_nearest3d(
    self: Tensor, output_size: Sequence[int], scales_d: Factor = None, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """The element at floor(place / factor)."""
    return _nearest(self, output_size, [scales_d, scales_h, scales_w], False)


@decomposes(aten._upsample_nearest_exact1d.default)
def upsample_nearest_exact1d(self: Tensor, output_size: Sequence[int], scales: Factor = None) -> Tensor:
    """The element whose middle is nearest."""
    return _nearest(self, output_size, [scales], True)


@decomposes(aten._upsample_nearest_exact2d.default)
def upsample_nearest_exact2d(
    self: Tensor, output_size: Sequence[int], scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """The element whose middle is nearest."""
    return _nearest(self, output_size, [scales_h, scales_w], True)


@decomposes(aten._upsample_nearest_exact3d.default)
def upsample_nearest_exact3d(
    self: Tensor, output_size: Sequence[int], scales_d: Factor = None, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """The element whose middle is nearest."""
    return _nearest(self, output_size, [scales_d, scales_h, scales_w], True)


# ---------------------------------------------------------------- filters


def _triangle(distance: Tensor) -> Tensor:
    return (1 - distance.abs()).clamp(min=0)


def _cubic(a: float) -> Callable[[Tensor], Tensor]:
    """Keys' cubic convolution kernel."""

    def kernel(distance: Tensor) -> Tensor:
        x = distance.abs()
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((x - 5) * x + 8) * x * a - 4 * a
        return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))

    return kernel


def _step(size: int, out: int, align_corners: bool, factor: Factor) -> float:
    """How far apart two neighbouring places of the result lie in the input."""
    if align_corners:
        return 0.0 if is_known(out, 1) else (size - 1) / at_least(out - 1, 1)
    return 1.0 / factor if factor else size / out


def _neighbours(kernel: Kernel, reach: int) -> Weigh:
    """The kernel around each place; what lies beyond the edge counts for the edge."""

    def weigh(size: int, out: int, align_corners: bool, factor: Factor, dtype: torch.dtype) -> Tensor:
        step = _step(size, out, align_corners, factor)
        place = torch.arange(out, dtype=dtype)
        source = place * step if align_corners else (place + 0.5) * step - 0.5
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


def _stretched(kernel: Kernel, reach: int) -> Weigh:
    """The kernel as wide as the step, against aliasing; the weights within the input add up to 1."""

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


def _filter(
    self: Tensor, output_size: Sequence[int], align_corners: bool, factors: Sequence[Factor], weigh: Weigh
) -> Tensor:
    """Each axis times its weights, the last axis first; bytes are rounded after each."""
    dtype, rank = self.dtype, self.dim()
    work = torch.float64 if dtype in (torch.float64, torch.uint8) else torch.float32
    self = self.to(work)
    for axis in reversed(range(2, rank)):
        weights = weigh(self.shape[axis], output_size[axis - 2], align_corners, factors[axis - 2], work)
        if dtype == torch.uint8:
            self = _product_of_bytes(self, axis - rank, weights)
        else:
            self = matmul_along(self, axis - rank, weights)
    return self.to(dtype)


def _product_of_bytes(self: Tensor, axis: int, weights: Tensor) -> Tensor:
    """The product in the fixed point of ATen's bytes: weights of 15 bits, the sum rounded half up."""
    bits = torch.log2(32767.5 / weights.max()).floor()
    unit = torch.exp2(bits)
    fixed = (weights * unit).abs().add(0.5).floor() * weights.sign()
    return (matmul_along(self, axis, fixed) / unit + 0.5).floor().clamp(0, 255)


_LINEAR, _CUBIC = _neighbours(_triangle, 1), _neighbours(_cubic(-0.75), 2)
_LINEAR_ANTIALIASED, _CUBIC_ANTIALIASED = _stretched(_triangle, 1), _stretched(_cubic(-0.5), 2)


@decomposes(aten.upsample_linear1d.default)
def upsample_linear1d(self: Tensor, output_size: Sequence[int], align_corners: bool, scales: Factor = None) -> Tensor:
    """Linear interpolation."""
    return _filter(self, output_size, align_corners, [scales], _LINEAR)


@decomposes(aten.upsample_bilinear2d.default)
def upsample_bilinear2d(
    self: Tensor, output_size: Sequence[int], align_corners: bool, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """Linear interpolation along both axes."""
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
    """Linear interpolation along the three axes."""
    return _filter(self, output_size, align_corners, [scales_d, scales_h, scales_w], _LINEAR)


@decomposes(aten.upsample_bicubic2d.default)
def upsample_bicubic2d(
    self: Tensor, output_size: Sequence[int], align_corners: bool, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """Cubic convolution along both axes, with a = -0.75."""
    return _filter(self, output_size, align_corners, [scales_h, scales_w], _CUBIC)


@decomposes(aten._upsample_bilinear2d_aa.default)
def upsample_bilinear2d_aa(
    self: Tensor, output_size: Sequence[int], align_corners: bool, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """A triangle filter as wide as the step, along both axes."""
    return _filter(self, output_size, align_corners, [scales_h, scales_w], _LINEAR_ANTIALIASED)


@decomposes(aten._upsample_bicubic2d_aa.default)
def upsample_bicubic2d_aa(
    self: Tensor, output_size: Sequence[int], align_corners: bool, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """A cubic filter (a = -0.5) as wide as two steps, along both axes."""
    return _filter(self, output_size, align_corners, [scales_h, scales_w], _CUBIC_ANTIALIASED)
