"""Operators on images."""

from collections.abc import Sequence

from onnx_ir import Value
from torch import Tensor

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translations._spatial import over_batch
from fx_onnx.translations._widening import widened

_PADDING_MODES = ("zeros", "border", "reflection")


def _is_image_batch(self: Tensor) -> bool:
    return self.dim() == 4


@translates(aten.pixel_shuffle.default, supports=_is_image_batch)
def aten_pixel_shuffle(op: Emitter, self: Value, upscale_factor: int) -> Value:
    """Emits DepthToSpace: (N, C r r, H, W) → (N, C, H r, W r)."""
    result: Value = op.DepthToSpace(self, blocksize=upscale_factor, mode="CRD")
    return result


@translates(aten.pixel_unshuffle.default, since=28, supports=_is_image_batch)
def aten_pixel_unshuffle(op: Emitter, self: Value, downscale_factor: int) -> Value:
    """Emits SpaceToDepth, which has torch's order from opset 28: (N, C, H r, W r) → (N, C r r, H, W)."""
    result: Value = op.SpaceToDepth(self, blocksize=downscale_factor, mode="CRD")
    return result


def _is_2d(input: Tensor) -> bool:
    return input.dim() == 4


def _grid_sample(op: Emitter, input: Value, grid: Value, mode: str, padding_mode: int, align_corners: bool) -> Value:
    result = op.GridSample(
        widened(op, "GridSample", input),
        widened(op, "GridSample", grid),
        mode=mode,
        padding_mode=_PADDING_MODES[padding_mode],
        align_corners=align_corners,
    )
    return op.cast(result, op.out_dtype)


@translates(aten.grid_sampler.default, aten.grid_sampler_2d.default, supports=_is_2d)
def aten_grid_sampler_2d(
    op: Emitter, input: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    """Emits GridSample, whose modes have other names before opset 20; the grid holds coordinates from -1 to 1."""
    mode = ("bilinear", "nearest", "bicubic")[interpolation_mode]
    return _grid_sample(op, input, grid, mode, padding_mode, align_corners)


@translates(aten.grid_sampler.default, aten.grid_sampler_2d.default, aten.grid_sampler_3d.default, since=20)
def aten_grid_sampler(
    op: Emitter, input: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    """Emits GridSample, which also admits volumes from opset 20; the grid holds coordinates from -1 to 1."""
    mode = ("linear", "nearest", "cubic")[interpolation_mode]
    return _grid_sample(op, input, grid, mode, padding_mode, align_corners)


def _has_distinct_corners(size: Sequence[Size], align_corners: bool) -> bool:
    """Returns whether corners can be aligned: for an axis of one pixel, torch uses position 0 and ONNX divides by 0."""
    return not align_corners or not any(
        isinstance(count, int) and count == 1 for count in map(symbolic_sizes.static, size[2:])
    )


@translates(aten.affine_grid_generator.default, since=20, supports=_has_distinct_corners)
def aten_affine_grid_generator(op: Emitter, theta: Value, size: Sequence[Size], align_corners: bool) -> Value:
    """Emits AffineGrid: the positions from -1 to 1 in each axis of the image, transformed by theta."""
    result: Value = op.AffineGrid(theta, op.shape(size), align_corners=align_corners)
    return result


@translates(aten.col2im.default)
def aten_col2im(
    op: Emitter,
    self: Value,
    output_size: Sequence[Size],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """Emits Col2Im: the sum of blocks, one for each column of self, at their positions in the image."""
    image, block = op.shape(output_size), op.shape(kernel_size)
    attributes = {"dilations": dilation, "pads": [*padding, *padding], "strides": stride}
    return over_batch(op, self, 1, lambda x: op.Col2Im(x, image, block, **attributes))
