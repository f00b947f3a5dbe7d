"""Quantisation in plain arithmetic: what has no single ONNX operator, or not in every opset."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fx_onnx.decompositions._sizes import is_known
from fx_onnx.decompositions._torch_private import statically_known_true
from fx_onnx.decompositions.registry import aten, decomposes, quantized

Number = float | Tensor


def _along(parameter: Tensor, axis: int, rank: int) -> Tensor:
    """A vector as a tensor that broadcasts along one axis."""
    return parameter.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


def _rounded(value: Tensor, scale: Number, zero_point: Number) -> Tensor:
    return torch.round(value.float() * (1.0 / scale)) + zero_point


@decomposes(
    quantized.quantize_per_tensor.default, quantized.quantize_per_tensor.tensor, quantized.quantize_per_tensor.tensor2
)
def quantize_per_tensor(
    input: Tensor, scale: Number, zero_point: Number, quant_min: Number, quant_max: Number, dtype: torch.dtype
) -> Tensor:
    """clamp(round(input / scale) + zero_point, quant_min, quant_max)."""
    if isinstance(scale, Tensor) and isinstance(zero_point, Tensor):
        scale, zero_point = scale.reshape(()), zero_point.reshape(())
    rounded = _rounded(input, scale, zero_point)
    return torch.clamp(rounded, quant_min, quant_max).to(dtype)  # type: ignore[arg-type]


@decomposes(
    quantized.dequantize_per_tensor.default,
    quantized.dequantize_per_tensor.tensor,
    quantized.dequantize_per_tensor.tensor2,
)
def dequantize_per_tensor(
    input: Tensor,
    scale: Number,
    zero_point: Number,
    quant_min: Number,
    quant_max: Number,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """(input - zero_point) * scale."""
    if isinstance(scale, Tensor) and isinstance(zero_point, Tensor):
        scale, zero_point = scale.reshape(()), zero_point.reshape(())
    result = torch.float32 if out_dtype is None else out_dtype
    return ((input.to(result) - zero_point) * scale).to(result)


@decomposes(quantized.quantize_per_channel.default)
def quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    """clamp(round(input / scale) + zero_point, quant_min, quant_max), with a scale for each index of the axis."""
    scales, zero_points = _along(scales, axis, input.dim()), _along(zero_points, axis, input.dim())
    return torch.clamp(_rounded(input, scales, zero_points), quant_min, quant_max).to(dtype)


@decomposes(quantized.dequantize_per_channel.default)
def dequantize_per_channel(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """(input - zero_point) * scale, with a scale for each index of the axis."""
    shifted = input if zero_points is None else input - _along(zero_points, axis, input.dim())
    result = torch.float32 if out_dtype is None else out_dtype
    return (shifted * _along(scales, axis, input.dim())).to(result)


@decomposes(quantized.quantize_per_token.default)
def quantize_per_token(
    input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    """clamp(round(input / scale + zero_point)): rounded after the addition, so an odd zero point moves the middle."""
    return (input * (1.0 / scales) + zero_points).round().clamp(quant_min, quant_max).to(dtype)


@decomposes(quantized.dequantize_per_token.default)
def dequantize_per_token(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    output_dtype: torch.dtype,
) -> Tensor:
    """(input - zero_point) * scale, with a scale for each row."""
    return ((input - zero_points) * scales).to(output_dtype)


@decomposes(quantized.quantize_per_channel_group.default)
def quantize_per_channel_group(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int,
) -> Tensor:
    """clamp(round(input / scale + zero_point)), with a scale for each group of columns of each row."""
    groups = input.reshape(-1, _group(input, scales, group_size))
    rounded = (groups * (1.0 / scales.reshape(-1, 1)) + zero_points.reshape(-1, 1)).round()
    return rounded.clamp(quant_min, quant_max).to(dtype).reshape(input.shape)


@decomposes(quantized.dequantize_per_channel_group.default)
def dequantize_per_channel_group(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int,
    output_dtype: torch.dtype,
) -> Tensor:
    """(input - zero_point) * scale, with a scale for each group of columns of each row."""
    groups = input.reshape(-1, _group(input, scales, group_size))
    if input.dtype in (torch.int8, torch.uint8) and (zero_points is None or not zero_points.dtype.is_floating_point):
        zeros = None if zero_points is None else zero_points.reshape(-1)
        scales = scales.reshape(-1)
        found: Tensor = quantized.dequantize_per_channel(groups, scales, zeros, 0, quant_min, quant_max, dtype)
        return found.reshape(input.shape).to(output_dtype)
    shifted = groups if zero_points is None else groups - zero_points.reshape(-1, 1)
    return (shifted * scales.reshape(-1, 1)).reshape(input.shape).to(output_dtype)


def _group(input: Tensor, scales: Tensor, group_size: int) -> int:
    """The columns of a group; a matrix narrower than that has one group a row."""
    return input.shape[-1] if scales.shape[-1] == 1 and group_size > input.shape[-1] else group_size


# --- choosing the parameters ------------------------------------------------------------------------------------------


def _range_with_zero(input: Tensor) -> tuple[Tensor, Tensor]:
    low, high = torch.aminmax(input)
    return low.clamp(max=0), high.clamp(min=0)


def _vectors(scale: Tensor, zero_point: Tensor) -> tuple[Tensor, Tensor]:
    return scale.reshape(1).double(), zero_point.reshape(1).long()


@decomposes(quantized.choose_qparams.tensor)
def choose_qparams(
    input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """scale = (max - min) / (quant_max - quant_min), zero_point = quant_min - round(min / scale); 0 is in the range."""
    low, high = _range_with_zero(input)
    scale = ((high - low) / float(quant_max - quant_min)).float().clamp(min=eps)
    zero_point = quant_min - torch.round(low.float() / scale)
    return _vectors(scale, zero_point.clamp(quant_min, quant_max))


@decomposes(quantized.choose_qparams_symmetric.tensor)
def choose_qparams_symmetric(
    input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """scale = max(abs) / half the range, with the zero point in its middle."""
    low, high = _range_with_zero(input)
    scale = (torch.maximum(-low, high) / (float(quant_max - quant_min) / 2)).float().clamp(min=eps)
    return _vectors(scale, torch.full_like(scale, 128 if dtype == torch.uint8 else 0))


@decomposes(quantized.choose_qparams_per_token.default)
def choose_qparams_per_token(input: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """scale = max(abs) / 127 of each row, and a zero point of zero."""
    scales = input.abs().amax(dim=-1, keepdim=True)
    if scales.dtype == torch.float16:
        scales = scales.float()
    scales = scales.clamp(min=1e-5) / 127
    return scales, torch.zeros_like(scales)


@decomposes(
    quantized.choose_qparams_per_token_asymmetric.default, quantized._choose_qparams_per_token_asymmetric_impl.default
)
def choose_qparams_per_token_asymmetric(input: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The int8 parameters of each row; the zero point errs at the end of the range where that costs less."""
    low, high = input.amin(dim=-1, keepdim=True).clamp(max=0), input.amax(dim=-1, keepdim=True).clamp(min=0)
    scale = ((high - low) / 255.0).clamp(min=torch.finfo(torch.float32).eps)
    below, above = low / scale, high / scale
    zero_point = torch.where((below - 128) + (above + 127) > 0, -128 - below, 127 - above)
    return scale.double(), zero_point.clamp(-128, 127).round().long()


# --- fake quantisation ------------------------------------------------------------------------------------------------


def _faked(value: Tensor, scale: Number, zero_point: Number, low: int, high: int) -> tuple[Tensor, Tensor]:
    """Quantised and dequantised again, and where nothing was cut off."""
    integers = torch.round(value * (1.0 / scale)) + zero_point
    inside = torch.logical_and(integers >= low, integers <= high)
    return ((integers.clamp(low, high) - zero_point) * scale).to(value.dtype), inside


@decomposes(aten.fake_quantize_per_tensor_affine_cachemask.default)
def fake_quantize_per_tensor_affine_cachemask(
    self: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """The values quantised and dequantised again, and where nothing was cut off."""
    return _faked(self, scale, zero_point, quant_min, quant_max)


@decomposes(aten.fake_quantize_per_channel_affine_cachemask.default)
def fake_quantize_per_channel_affine_cachemask(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """The values quantised and dequantised again, and where nothing was cut off."""
    rank = self.dim()
    return _faked(self, _along(scale, axis, rank), _along(zero_point, axis, rank), quant_min, quant_max)


@decomposes(aten.fake_quantize_per_tensor_affine.default, aten.fake_quantize_per_tensor_affine.tensor_qparams)
def fake_quantize_per_tensor_affine(
    self: Tensor, scale: Number, zero_point: Number, quant_min: int, quant_max: int
) -> Tensor:
    """The values quantised and dequantised again."""
    if isinstance(scale, Tensor) and isinstance(zero_point, Tensor):
        scale, zero_point = scale.reshape(()), zero_point.reshape(())
    return _faked(self, scale, zero_point, quant_min, quant_max)[0]


@decomposes(aten.fake_quantize_per_channel_affine.default, quantized.fake_quant_per_channel.default)
def fake_quantize_per_channel_affine(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """The values quantised and dequantised again."""
    rank = self.dim()
    return _faked(self, _along(scale, axis, rank), _along(zero_point, axis, rank), quant_min, quant_max)[0]


@decomposes(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default)
def fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
    self: Tensor, scale: Tensor, zero_point: Tensor, fake_quant_enabled: Tensor, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """The values quantised and dequantised again, where that is enabled, and where nothing was cut off."""
    faked, inside = _faked(self, scale.reshape(()), zero_point.reshape(()), quant_min, quant_max)
    enabled = fake_quant_enabled.reshape(()) != 0
    return torch.where(enabled, faked, self), torch.logical_or(inside, torch.logical_not(enabled))


# --- products of quantised matrices -----------------------------------------------------------------------------------


@decomposes(aten._weight_int8pack_mm.default)
def weight_int8pack_mm(self: Tensor, mat2: Tensor, scales: Tensor) -> Tensor:
    """self @ mat2.T * scales, rounded once."""
    return (torch.nn.functional.linear(self.float(), mat2.float()) * scales.float()).to(self.dtype)


@decomposes(aten._scaled_mm.default)
def scaled_mm(
    self: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """(self * scale_a) @ (mat2 * scale_b) + bias; scales of the whole matrix, of each row or column, or of blocks."""
    product = _scaled_product(self, mat2, scale_a, scale_b)
    if bias is not None:
        product = product + bias.float()
    if scale_result is not None:
        product = product * scale_result.float()
    return product.to(self.dtype if out_dtype is None else out_dtype)


_WHOLE, _ROWS = 0, 1  # of torch.nn.functional.ScalingType


@decomposes(aten._scaled_mm_v2.default)
def scaled_mm_v2(
    self: Tensor, mat2: Tensor,
    scale_a: Sequence[Tensor], recipe_a: Sequence[int], swizzle_a: Sequence[int],
    scale_b: Sequence[Tensor], recipe_b: Sequence[int], swizzle_b: Sequence[int],
    bias: Tensor | None, out_dtype: torch.dtype | None, contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """``torch.nn.functional.scaled_mm``, of which torch says on every machine what whole matrices and rows mean."""
    recipes = {*recipe_a, *recipe_b}
    if not recipes <= {_WHOLE, _ROWS} or any((*swizzle_a, *swizzle_b)) or len(scale_a) + len(scale_b) > 2:
        raise NotImplementedError("scaled_mm has a form here for the scaling types TensorWise and RowWise only")
    product: Tensor = aten._scaled_mm.default(self, mat2, scale_a[0], scale_b[0], bias, None, out_dtype)
    return product


_BLOCK = 128  # the only size of blocks whose scales are numbers in the order of the blocks


def _scaled_product(self: Tensor, mat2: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    if _is_along(scale_a, 1) and _is_along(scale_b, 0):
        return torch.matmul(self.float(), mat2.float()) * scale_a.float() * scale_b.float()
    if torch.float8_e8m0fnu in (scale_a.dtype, scale_b.dtype):
        raise NotImplementedError("scales of float8_e8m0fnu lie in an order of the machine's, which has no form here")
    return torch.matmul(self.float() * _spread(scale_a, self), mat2.float() * _spread(scale_b, mat2))


def _is_along(scale: Tensor, axis: int) -> bool:
    """Whether there is one scale, or one for all that lies along the axis."""
    if scale.dim() != 2:
        return scale.dim() == 0 or (scale.dim() == 1 and is_known(scale.shape[0], 1))
    return is_known(scale.shape[axis], 1)


def _spread(scale: Tensor, matrix: Tensor) -> Tensor:
    """The scale of each element: along an axis each has its own, or 128 share one, the last block being any smaller."""
    scale = scale.float()
    for axis, size in enumerate(matrix.shape if scale.dim() else ()):
        if not statically_known_true(scale.shape[axis] == size):
            scale = scale.repeat_interleave(_BLOCK, axis).narrow(axis, 0, size)
    return scale
