"""Upsampling as reads along each axis, or as products with the weights of a filter."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fx_onnx.decompositions._lines import at_least, product_along
from fx_onnx.decompositions.registry import decomposes

aten = torch.ops.aten

Factor = float | None


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


def _nearest(self: Tensor, output_size: Sequence[int], factors: Sequence[Factor], shift: float) -> Tensor:
    """Each axis read at floor((place + shift) / factor), computed in float32 as ATen does."""
    for axis, (out, factor) in enumerate(zip(output_size, factors, strict=True), 2):
        size = self.shape[axis]
        places = torch.arange(out, dtype=torch.float32, device=self.device)
        step = torch.full((), 1.0 / factor) if factor else _ratio(size, out)
        index = ((places + shift) * step).floor().to(torch.int64)
        if shift == 0 and statically_known_true(out == 2 * size):
            index = torch.arange(out, device=self.device) // 2
        self = self.index_select(axis, index.clamp(max=size - 1))
    return self


def _ratio(size: int, out: int) -> Tensor:
    return torch.full((), size, dtype=torch.float32) / out


@decomposes(aten.upsample_nearest1d.default)
def upsample_nearest1d(self: Tensor, output_size: Sequence[int], scales: Factor = None) -> Tensor:
    """The element at floor(place / factor)."""
    return _nearest(self, output_size, [scales], 0)


@decomposes(aten.upsample_nearest2d.default)
def upsample_nearest2d(
    self: Tensor, output_size: Sequence[int], scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """The element at floor(place / factor)."""
    return _nearest(self, output_size, [scales_h, scales_w], 0)


@decomposes(aten.upsample_nearest3d.default)
def upsample_nearest3d(
    self: Tensor, output_size: Sequence[int], scales_d: Factor = None, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """The element at floor(place / factor)."""
    return _nearest(self, output_size, [scales_d, scales_h, scales_w], 0)


@decomposes(aten._upsample_nearest_exact1d.default)
def upsample_nearest_exact1d(self: Tensor, output_size: Sequence[int], scales: Factor = None) -> Tensor:
    """The element whose middle is nearest."""
    return _nearest(self, output_size, [scales], 0.5)


@decomposes(aten._upsample_nearest_exact2d.default)
def upsample_nearest_exact2d(
    self: Tensor, output_size: Sequence[int], scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """The element whose middle is nearest."""
    return _nearest(self, output_size, [scales_h, scales_w], 0.5)


@decomposes(aten._upsample_nearest_exact3d.default)
def upsample_nearest_exact3d(
    self: Tensor, output_size: Sequence[int], scales_d: Factor = None, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """The element whose middle is nearest."""
    return _nearest(self, output_size, [scales_d, scales_h, scales_w], 0.5)


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
        return (size - 1) / at_least(out - 1, 1)
    return 1.0 / factor if factor else size / out


def _interpolate(
    self: Tensor,
    output_size: Sequence[int],
    align_corners: bool,
    factors: Sequence[Factor],
    kernel: Callable[[Tensor], Tensor],
    reach: int,
) -> Tensor:
    """Each axis times the kernel around its places; what lies beyond the edge counts for the edge."""
    dtype = self.dtype
    work = torch.float64 if dtype == torch.float64 else torch.float32
    self = self.to(work)
    for axis, (out, factor) in enumerate(zip(output_size, factors, strict=True), 2):
        size = self.shape[axis]
        step = _step(size, out, align_corners, factor)
        place = torch.arange(out, dtype=work)
        source = place * step if align_corners else (place + 0.5) * step - 0.5
        if reach == 1:
            source = source.clamp(0, size - 1)
        first = source.floor() - (reach - 1)
        rows = torch.arange(size, dtype=work).unsqueeze(1)
        weights = torch.zeros_like(rows * source)
        for tap in range(2 * reach):
            at = first + tap
            weights = weights + torch.where(rows == at.clamp(0, size - 1), kernel(source - at), 0.0)
        self = product_along(self, axis - self.dim(), weights)
    return self.to(dtype)


def _antialiased(
    self: Tensor,
    output_size: Sequence[int],
    align_corners: bool,
    factors: Sequence[Factor],
    kernel: Callable[[Tensor], Tensor],
    reach: int,
) -> Tensor:
    """Each axis times the kernel stretched to the step; the weights within the input add up to 1."""
    dtype = self.dtype
    work = torch.float64 if dtype == torch.float64 else torch.float32
    self = self.to(work)
    for axis, (out, factor) in enumerate(zip(output_size, factors, strict=True), 2):
        size = self.shape[axis]
        step = _step(size, out, align_corners, factor)
        stretch = at_least(step, 1.0)
        center = (torch.arange(out, dtype=work) + 0.5) * step
        rows = torch.arange(size, dtype=work).unsqueeze(1)
        begin = (center - reach * stretch + 0.5).trunc()
        end = (center + reach * stretch + 0.5).trunc()
        weights = kernel((rows - center + 0.5) / stretch)
        weights = torch.where((rows >= begin) & (rows < end), weights, 0.0)
        self = product_along(self, axis - self.dim(), weights / weights.sum(0, keepdim=True))
    return self.to(dtype)


@decomposes(aten.upsample_linear1d.default)
def upsample_linear1d(self: Tensor, output_size: Sequence[int], align_corners: bool, scales: Factor = None) -> Tensor:
    """Linear interpolation."""
    return _interpolate(self, output_size, align_corners, [scales], _triangle, 1)


@decomposes(aten.upsample_bilinear2d.default)
def upsample_bilinear2d(
    self: Tensor, output_size: Sequence[int], align_corners: bool, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """Linear interpolation along both axes."""
    return _interpolate(self, output_size, align_corners, [scales_h, scales_w], _triangle, 1)


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
    return _interpolate(self, output_size, align_corners, [scales_d, scales_h, scales_w], _triangle, 1)


@decomposes(aten.upsample_bicubic2d.default)
def upsample_bicubic2d(
    self: Tensor, output_size: Sequence[int], align_corners: bool, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """Cubic convolution along both axes, with a = -0.75."""
    return _interpolate(self, output_size, align_corners, [scales_h, scales_w], _cubic(-0.75), 2)


@decomposes(aten._upsample_bilinear2d_aa.default)
def upsample_bilinear2d_aa(
    self: Tensor, output_size: Sequence[int], align_corners: bool, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """A triangle filter as wide as the step, along both axes."""
    return _antialiased(self, output_size, align_corners, [scales_h, scales_w], _triangle, 1)


@decomposes(aten._upsample_bicubic2d_aa.default)
def upsample_bicubic2d_aa(
    self: Tensor, output_size: Sequence[int], align_corners: bool, scales_h: Factor = None, scales_w: Factor = None
) -> Tensor:
    """A cubic filter (a = -0.5) as wide as two steps, along both axes."""
    return _antialiased(self, output_size, align_corners, [scales_h, scales_w], _cubic(-0.5), 2)
