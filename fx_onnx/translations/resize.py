"""Upsampling: ONNX Resize.

torch computes the output at a position from the input near ``position / factor``. The factor is an argument, or else
out / in. Resize does the same: the factor is in ``scales``, or follows from ``sizes``. ONNX's scales are float32, so a
factor is passed only if its float32 gives the same size. Nearest-neighbour positions must also select the same
elements: torch and Resize both compute them in float32, but in a different order of operations.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx_ir import DataType, Value
from torch import Tensor

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.onnx_model import dtypes
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter

Factor = float | None
Factors = Sequence[Factor]
Attributes = dict[str, Any]


_NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
_NEAREST_EXACT = {
    "mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil",
}  # fmt: skip
_LINEAR = {"mode": "linear"}
_CUBIC = {"mode": "cubic", "cubic_coeff_a": -0.75}
_ANTIALIAS = {"antialias": 1, "exclude_outside": 1}
_LINEAR_ANTIALIAS = {**_LINEAR, **_ANTIALIAS}
_CUBIC_ANTIALIAS = {"mode": "cubic", "cubic_coeff_a": -0.5, **_ANTIALIAS}


# ---------------------------------------------------------------- scales or sizes


def _float32_factor(size: Size, out: Size, factor: float) -> float | None:
    """Returns a float32 near ``factor`` with which floor(size * factor) is ``out``, or None.

    torch multiplies in float64. A symbolic size admits only a factor that is itself a float32.
    """
    near = np.float32(factor)
    if not isinstance(size, int):
        return factor if float(near) == factor and not isinstance(out, int) else None
    if not isinstance(out, int):
        return None
    for candidate in (near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(0))):
        if math.floor(np.float32(size) * candidate) == out == math.floor(size * float(candidate)):
            return float(candidate)
    return None


def _equals_size_ratio(size: Size, out: Size, factor: float | None) -> bool:
    """Returns whether the factor equals out / in, so that Resize can take the sizes instead of the factors."""
    return factor is None or (isinstance(size, int) and isinstance(out, int) and size * factor == out)


@dataclass(frozen=True)
class _Operands:
    """The exact operands of a Resize: its scales, or the output sizes if ``scales`` is None."""

    scales: list[float] | None


def _exact_operands(sizes: Sequence[Size], outs: Sequence[Size], factors: Factors) -> _Operands | None:
    """Returns the operands with which Resize gives torch's sizes, or None if neither scales nor sizes are exact."""
    axes = list(zip(sizes, outs, factors, strict=True))
    by_sizes = all(_equals_size_ratio(*axis) for axis in axes)
    scales = [None if factor is None else _float32_factor(size, out, factor) for size, out, factor in axes]
    exact = [scale for scale in scales if scale is not None]
    if len(exact) < len(axes) or (by_sizes and exact != list(factors)):
        return _Operands(None) if by_sizes else None
    return _Operands(exact)


@functools.cache
def _same_elements(size: int, out: int, factor: float | None, scale: float | None, exact: bool) -> bool:
    """Returns whether Resize and torch read the same elements.

    torch multiplies positions by 1 / factor, and Resize divides them by factor.

    Source: HelperInterpNearest in ATen's UpSampleKernel.cpp and the coordinates of ONNX Resize, each in float32.
    """
    position, half = np.arange(out, dtype=np.float32), np.float32(0.5)
    step = np.float32(1 / factor) if factor else np.float32(size) / np.float32(out)
    ratio = np.float32(scale if scale is not None else out / size)
    if exact:
        by_torch, by_onnx = ((position + half) * step - half) + half, ((position + half) / ratio - half) + half
    else:
        by_torch, by_onnx = position * step, position / ratio
    last = size - 1
    return bool(np.array_equal(np.clip(np.floor(by_torch), 0, last), np.clip(np.floor(by_onnx), 0, last)))


# The elements for a dynamic size are compared up to this size. If they agree, they also agree for larger sizes, because
# the float32 of 1 / factor is then not below 1 / factor, and the rounding errors do not reach the next element.
_MAX_CHECKED_SIZE = 2**14


def _is_exact_nearest(sizes: Sequence[Size], outs: Sequence[Size], factors: Factors, exact: bool) -> bool:
    """Returns whether nearest-neighbour Resize gives torch's sizes and reads the same elements."""
    operands = _exact_operands(sizes, outs, factors)
    if operands is None:
        return False
    scales: Sequence[float | None] = [None] * len(outs) if operands.scales is None else operands.scales
    for size, out, factor, scale in zip(sizes, outs, factors, scales, strict=True):
        if len(sizes) != 2 and _may_copy(size, out, factor):
            return False  # torch copies only images, if they are small
        if not (isinstance(size, int) and isinstance(out, int)):
            factor = factor or _constant_ratio(size, out)
            if factor is None:
                return False  # torch and Resize round the ratio of two sizes differently
            # The positions of a large size begin with those of every smaller size.
            size, out, scale = _MAX_CHECKED_SIZE, math.floor(_MAX_CHECKED_SIZE * factor), scale or factor
        if not _same_elements(size, out, factor, scale, exact):
            return False
    return True


def _constant_ratio(size: Size, out: Size) -> Factor:
    """Returns out / in where that is one number for all sizes, as for twice a dynamic size; else None."""
    ratio = symbolic_sizes.expression(out) / symbolic_sizes.expression(size)
    return float(ratio) if ratio.is_Rational else None


# ---------------------------------------------------------------- the predicates


def _axes_of(
    self: Tensor, output_size: Sequence[Size] | None, factors: Factors | None
) -> tuple[list[Size], list[Size], Factors]:
    """Returns the spatial sizes, the output sizes (a symbol if unknown), and a factor or None for each axis."""
    sizes = [symbolic_sizes.static(size) for size in self.shape[2:]]
    if output_size is not None:
        return sizes, [symbolic_sizes.static(size) for size in output_size], factors or [None] * len(sizes)
    factors = list(factors or ())
    outs = [math.floor(s * f) if isinstance(s, int) and f else s for s, f in zip(sizes, factors, strict=True)]
    return sizes, outs, factors


def _reads_same_elements(exact: bool) -> Callable[..., bool]:
    """Returns a predicate for the overloads that take a factor for each axis."""

    def is_supported(
        self: Tensor, output_size: Sequence[Size], scales: Factor = None, scales_d: Factor = None,
        scales_h: Factor = None, scales_w: Factor = None,
    ) -> bool:  # fmt: skip
        factors = (scales_d, scales_h, scales_w)[5 - self.dim() :] if self.dim() > 3 else (scales,)
        return _is_exact_nearest(*_axes_of(self, output_size, factors), exact)

    return is_supported


def _reads_same_elements_vec(exact: bool) -> Callable[..., bool]:
    """Returns a predicate for the overloads ``vec``, which take a list of factors."""

    def is_supported(input: Tensor, output_size: Sequence[Size] | None, scale_factors: Factors | None) -> bool:
        return _is_exact_nearest(*_axes_of(input, output_size, scale_factors), exact)

    return is_supported


def _interpolates_equally(attributes: Attributes) -> Callable[..., bool]:
    """Returns a predicate for the overloads that take a factor for each axis."""

    def is_supported(
        self: Tensor, output_size: Sequence[Size], align_corners: bool, scales: Factor = None, scales_d: Factor = None,
        scales_h: Factor = None, scales_w: Factor = None,
    ) -> bool:  # fmt: skip
        factors = (scales_d, scales_h, scales_w)[5 - self.dim() :] if self.dim() > 3 else (scales,)
        return _is_interpolation(self, output_size, align_corners, factors, attributes)

    return is_supported


def _interpolates_equally_vec(attributes: Attributes) -> Callable[..., bool]:
    """Returns a predicate for the overloads ``vec``, which take a list of factors."""

    def is_supported(
        input: Tensor, output_size: Sequence[Size] | None, align_corners: bool, scale_factors: Factors | None
    ) -> bool:
        return _is_interpolation(input, output_size, align_corners, scale_factors, attributes)

    return is_supported


def _is_interpolation(
    self: Tensor,
    output_size: Sequence[Size] | None,
    align_corners: bool,
    factors: Factors | None,
    attributes: Attributes,
) -> bool:
    """Returns whether Resize interpolates as torch does.

    Resize rounds integers differently, and its antialiasing filter differs from torch's with align_corners.
    """
    if dtypes.is_integer(dtypes.onnx_dtype(self.dtype)):
        return False
    if align_corners:
        return "antialias" not in attributes
    axes = _axes_of(self, output_size, factors)
    if not _copies(attributes) and all(map(_may_copy, *axes)):
        return False  # ONNX Runtime copies it
    return _exact_operands(*axes) is not None


def _copies(attributes: Attributes) -> bool:
    """Returns whether torch copies an axis that keeps its size, whatever its factor; it computes others."""
    return attributes["mode"] == "linear" or "antialias" in attributes


# ---------------------------------------------------------------- the translations


def _resize(op: Emitter, self: Value, factors: Factors | None, attributes: Attributes, aligned: bool = False) -> Value:
    """Emits one Resize with scales or sizes for all axes, because several runtimes ignore or refuse ``axes``.

    With aligned corners, the factors have no effect.
    """
    outs, sizes = op.out_sizes[2:], op.sizes(self)[2:]
    given = factors or [None] * len(outs)
    known = all(isinstance(size, int) for size in outs)
    operands = _exact_operands(sizes, outs, [None] * len(outs) if aligned and known else given)
    if attributes["mode"] != "nearest":
        mode = "align_corners" if aligned else "half_pixel"
        attributes = {**attributes, "coordinate_transformation_mode": mode}
    scales = None if operands is None else operands.scales  # with aligned corners, inexact factors have no effect
    scales = _ratios(sizes, outs) if scales is None else scales
    if scales is None:
        return op.Resize(self, None, None, op.shape([*op.sizes(self)[:2], *outs]), **attributes)
    factor = op.constant([1.0, 1.0, *scales], DataType.FLOAT)
    if _copies(attributes) and any(map(_may_copy, sizes, outs, scales)):
        factor = op.Where(op.Equal(op.shape(op.sizes(self)), op.shape(op.out_sizes)), [1.0], factor)
    return op.Resize(self, None, factor, **attributes)


def _may_copy(size: Size, out: Size, factor: Factor) -> bool:
    """Returns whether an axis keeps its size with a factor above 1, or may do so, as 2 * 1.4 is rounded down to 2."""
    if isinstance(size, int) and isinstance(out, int):
        return size == out and factor not in (None, 1)
    return factor is not None and 1 < factor < 2


def _ratios(sizes: Sequence[Size], outs: Sequence[Size]) -> list[float] | None:
    """Returns the float32 ratios out / in, from which Resize computes the same as from the sizes; None if they differ.

    They differ if a size is dynamic, or if in * float32(out / in) rounds down to another size than ``out``.
    """
    ratios = []
    for size, out in zip(sizes, outs, strict=True):
        if not isinstance(size, int) or not isinstance(out, int) or not size:
            return None
        ratio = np.float32(out / size)
        if math.floor(np.float32(size) * ratio) != out or math.floor(size * float(ratio)) != out:
            return None
        ratios.append(float(ratio))
    return ratios


def _upsample(attributes: Attributes) -> tuple[Callable[..., Value], ...]:
    """Returns the translations of upsample_x1d, 2d, 3d and of their overloads ``vec``, without align_corners."""

    def aten_upsample1d(op: Emitter, self: Value, output_size: Sequence[Size], scales: float | None = None) -> Value:
        """Emits Resize by factor or by size."""
        return _resize(op, self, [scales], attributes)

    def aten_upsample2d(
        op: Emitter,
        self: Value,
        output_size: Sequence[Size],
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Value:
        """Emits Resize by factor or by size."""
        return _resize(op, self, [scales_h, scales_w], attributes)

    def aten_upsample3d(
        op: Emitter,
        self: Value,
        output_size: Sequence[Size],
        scales_d: float | None = None,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Value:
        """Emits Resize by factor or by size."""
        return _resize(op, self, [scales_d, scales_h, scales_w], attributes)

    def aten_upsample_vec(
        op: Emitter, input: Value, output_size: Sequence[Size] | None, scale_factors: Factors | None
    ) -> Value:
        """Emits Resize by factor or by size."""
        return _resize(op, input, scale_factors, attributes)

    return aten_upsample1d, aten_upsample2d, aten_upsample3d, aten_upsample_vec


def _upsample_interpolated(attributes: Attributes) -> tuple[Callable[..., Value], ...]:
    """Returns the translations of upsample_x1d, 2d, 3d and of their overloads ``vec``, with align_corners."""

    def aten_upsample1d(
        op: Emitter, self: Value, output_size: Sequence[Size], align_corners: bool, scales: float | None = None
    ) -> Value:
        """Emits Resize by factor or by size."""
        return _resize(op, self, [scales], attributes, align_corners)

    def aten_upsample2d(
        op: Emitter,
        self: Value,
        output_size: Sequence[Size],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Value:
        """Emits Resize by factor or by size."""
        return _resize(op, self, [scales_h, scales_w], attributes, align_corners)

    def aten_upsample3d(
        op: Emitter,
        self: Value,
        output_size: Sequence[Size],
        align_corners: bool,
        scales_d: float | None = None,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Value:
        """Emits Resize by factor or by size."""
        return _resize(op, self, [scales_d, scales_h, scales_w], attributes, align_corners)

    def aten_upsample_vec(
        op: Emitter,
        input: Value,
        output_size: Sequence[Size] | None,
        align_corners: bool,
        scale_factors: Factors | None,
    ) -> Value:
        """Emits Resize by factor or by size."""
        return _resize(op, input, scale_factors, attributes, align_corners)

    return aten_upsample1d, aten_upsample2d, aten_upsample3d, aten_upsample_vec


for _target, _exact, _axes in (
    (aten.upsample_nearest1d, False, 1),
    (aten.upsample_nearest2d, False, 2),
    (aten.upsample_nearest3d, False, 3),
    (aten._upsample_nearest_exact1d, True, 1),
    (aten._upsample_nearest_exact2d, True, 2),
    (aten._upsample_nearest_exact3d, True, 3),
):
    _functions = _upsample(_NEAREST_EXACT if _exact else _NEAREST)
    translates(_target.default, supports=_reads_same_elements(_exact))(_functions[_axes - 1])
    translates(_target.vec, supports=_reads_same_elements_vec(_exact))(_functions[3])

for _target, _attributes, _axes in (
    (aten.upsample_linear1d, _LINEAR, 1),
    (aten.upsample_bilinear2d, _LINEAR, 2),
    (aten.upsample_trilinear3d, _LINEAR, 3),
    (aten.upsample_bicubic2d, _CUBIC, 2),
    (aten._upsample_bilinear2d_aa, _LINEAR_ANTIALIAS, 2),
    (aten._upsample_bicubic2d_aa, _CUBIC_ANTIALIAS, 2),
):
    _functions = _upsample_interpolated(_attributes)
    translates(_target.default, supports=_interpolates_equally(_attributes))(_functions[_axes - 1])
    translates(_target.vec, supports=_interpolates_equally_vec(_attributes))(_functions[3])
