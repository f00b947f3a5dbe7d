"""Decompositions of quantization into plain arithmetic, where an opset has no operator for it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fx_onnx.decompositions._sizes import is_known
from fx_onnx.decompositions._torch_private import statically_known_true
from fx_onnx.decompositions.registry import aten, decomposes, quantized

Number = float | Tensor


def _as_scalars(scale: Number, zero_point: Number) -> tuple[Number, Number]:
    """Returns the parameters of a whole tensor, as 0-d tensors if they are tensors of one element."""
    if isinstance(scale, Tensor) and isinstance(zero_point, Tensor):
        return scale.reshape(()), zero_point.reshape(())
    return scale, zero_point


def _broadcast_along(parameter: Tensor, axis: int, rank: int) -> Tensor:
    """Returns a vector, shaped so that it broadcasts along one axis of a tensor of the given rank."""
    return parameter.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


def _quantize(value: Tensor, scale: Number, zero_point: Number) -> Tensor:
    """Returns round(value / scale) + zero_point, in float32."""
    return torch.round(value.float() * (1.0 / scale)) + zero_point


@decomposes(
    quantized.quantize_per_tensor.default, quantized.quantize_per_tensor.tensor, quantized.quantize_per_tensor.tensor2
)
def quantize_per_tensor(
    input: Tensor, scale: Number, zero_point: Number, quant_min: Number, quant_max: Number, dtype: torch.dtype
) -> Tensor:
    """Returns clamp(round(input / scale) + zero_point, quant_min, quant_max)."""
    scale, zero_point = _as_scalars(scale, zero_point)
    rounded = _quantize(input, scale, zero_point)
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
    """Returns (input - zero_point) * scale."""
    scale, zero_point = _as_scalars(scale, zero_point)
    result_dtype = torch.float32 if out_dtype is None else out_dtype
    return ((input.to(result_dtype) - zero_point) * scale).to(result_dtype)


@decomposes(quantized.quantize_per_channel.default)
def quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    """Returns clamp(round(input / scale) + zero_point), with a scale for each index of the axis."""
    scales, zero_points = _broadcast_along(scales, axis, input.dim()), _broadcast_along(zero_points, axis, input.dim())
    return torch.clamp(_quantize(input, scales, zero_points), quant_min, quant_max).to(dtype)


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
    """Returns (input - zero_point) * scale, with a scale for each index of the axis."""
    shifted = input if zero_points is None else input - _broadcast_along(zero_points, axis, input.dim())
    result_dtype = torch.float32 if out_dtype is None else out_dtype
    return (shifted * _broadcast_along(scales, axis, input.dim())).to(result_dtype)


@decomposes(quantized.quantize_per_token.default)
def quantize_per_token(
    input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    """Returns clamp(round(input / scale + zero_point)).

    It rounds after the addition, so halves round differently when the zero point is odd.
    """
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
    """Returns (input - zero_point) * scale, with a scale for each row."""
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
    """Returns clamp(round(input / scale + zero_point)), with a scale for each group of columns of each row."""
    groups = input.reshape(-1, _group_columns(input, scales, group_size))
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
    """Returns (input - zero_point) * scale, with a scale for each group of columns of each row."""
    groups = input.reshape(-1, _group_columns(input, scales, group_size))
    if input.dtype in (torch.int8, torch.uint8) and (zero_points is None or not zero_points.dtype.is_floating_point):
        zeros = None if zero_points is None else zero_points.reshape(-1)
        scales = scales.reshape(-1)
        values: Tensor = quantized.dequantize_per_channel(groups, scales, zeros, 0, quant_min, quant_max, dtype)
        return values.reshape(input.shape).to(output_dtype)
    shifted = groups if zero_points is None else groups - zero_points.reshape(-1, 1)
    return (shifted * scales.reshape(-1, 1)).reshape(input.shape).to(output_dtype)


def _group_columns(input: Tensor, scales: Tensor, group_size: int) -> int:
    """Returns the number of columns of a group; a narrower matrix has one group for each row."""
    return input.shape[-1] if scales.shape[-1] == 1 and group_size > input.shape[-1] else group_size


# ---------------------------------------------------------------- choice of the parameters


def _range_with_zero(input: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the smallest and the largest element, extended so that 0 is between them."""
    low, high = torch.aminmax(input)
    return low.clamp(max=0), high.clamp(min=0)


def _as_qparams(scale: Tensor, zero_point: Tensor) -> tuple[Tensor, Tensor]:
    """Returns scale and zero point in the shape and the dtypes of the operators: (1,), float64 and int64."""
    return scale.reshape(1).double(), zero_point.reshape(1).long()


@decomposes(quantized.choose_qparams.tensor)
def choose_qparams(
    input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Returns scale = (max - min) / (quant_max - quant_min) and zero_point = quant_min - round(min / scale).

    The range always includes 0.
    """
    low, high = _range_with_zero(input)
    scale = ((high - low) / float(quant_max - quant_min)).float().clamp(min=eps)
    zero_point = quant_min - torch.round(low.float() / scale)
    return _as_qparams(scale, zero_point.clamp(quant_min, quant_max))


@decomposes(quantized.choose_qparams_symmetric.tensor)
def choose_qparams_symmetric(
    input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Returns scale = max(abs) / half the range, and a zero point in the middle of the range."""
    low, high = _range_with_zero(input)
    scale = (torch.maximum(-low, high) / (float(quant_max - quant_min) / 2)).float().clamp(min=eps)
    return _as_qparams(scale, torch.full_like(scale, 128 if dtype == torch.uint8 else 0))


@decomposes(quantized.choose_qparams_per_token.default)
def choose_qparams_per_token(input: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Returns scale = max(abs) / 127 of each row, and a zero point of 0."""
    scales = input.abs().amax(dim=-1, keepdim=True)
    if scales.dtype == torch.float16:
        scales = scales.float()
    scales = scales.clamp(min=1e-5) / 127
    return scales, torch.zeros_like(scales)


@decomposes(
    quantized.choose_qparams_per_token_asymmetric.default, quantized._choose_qparams_per_token_asymmetric_impl.default
)
def choose_qparams_per_token_asymmetric(input: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Returns the int8 parameters of each row.

    The zero point is computed from the end of the range that gives the smaller error.
    """
    low, high = input.amin(dim=-1, keepdim=True).clamp(max=0), input.amax(dim=-1, keepdim=True).clamp(min=0)
    scale = ((high - low) / 255.0).clamp(min=torch.finfo(torch.float32).eps)
    below, above = low / scale, high / scale
    zero_point = torch.where((below - 128) + (above + 127) > 0, -128 - below, 127 - above)
    return scale.double(), zero_point.clamp(-128, 127).round().long()


# ---------------------------------------------------------------- fake quantization


def _fake_quantize(value: Tensor, scale: Number, zero_point: Number, low: int, high: int) -> tuple[Tensor, Tensor]:
    """Returns the values, quantized and dequantized, and a mask of the values that were not clamped."""
    integers = torch.round(value * (1.0 / scale)) + zero_point
    inside = torch.logical_and(integers >= low, integers <= high)
    return ((integers.clamp(low, high) - zero_point) * scale).to(value.dtype), inside


@decomposes(aten.fake_quantize_per_tensor_affine_cachemask.default)
def fake_quantize_per_tensor_affine_cachemask(
    self: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """Returns the values, quantized and dequantized, and a mask of the values that were not clamped."""
    return _fake_quantize(self, scale, zero_point, quant_min, quant_max)


@decomposes(aten.fake_quantize_per_channel_affine_cachemask.default)
def fake_quantize_per_channel_affine_cachemask(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """Returns the values, quantized and dequantized, and a mask of the values that were not clamped."""
    rank = self.dim()
    return _fake_quantize(
        self, _broadcast_along(scale, axis, rank), _broadcast_along(zero_point, axis, rank), quant_min, quant_max
    )


@decomposes(aten.fake_quantize_per_tensor_affine.default, aten.fake_quantize_per_tensor_affine.tensor_qparams)
def fake_quantize_per_tensor_affine(
    self: Tensor, scale: Number, zero_point: Number, quant_min: int, quant_max: int
) -> Tensor:
    """Returns the values, quantized and dequantized."""
    scale, zero_point = _as_scalars(scale, zero_point)
    return _fake_quantize(self, scale, zero_point, quant_min, quant_max)[0]


@decomposes(aten.fake_quantize_per_channel_affine.default, quantized.fake_quant_per_channel.default)
def fake_quantize_per_channel_affine(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """Returns the values, quantized and dequantized."""
    rank = self.dim()
    return _fake_quantize(
        self, _broadcast_along(scale, axis, rank), _broadcast_along(zero_point, axis, rank), quant_min, quant_max
    )[0]


@decomposes(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default)
def fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
    self: Tensor, scale: Tensor, zero_point: Tensor, fake_quant_enabled: Tensor, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """Returns the values, quantized and dequantized if enabled, and a mask of the values that were not clamped."""
    faked, inside = _fake_quantize(self, scale.reshape(()), zero_point.reshape(()), quant_min, quant_max)
    enabled = fake_quant_enabled.reshape(()) != 0
    return torch.where(enabled, faked, self), torch.logical_or(inside, torch.logical_not(enabled))


# ---------------------------------------------------------------- products of quantized matrices


@decomposes(aten._weight_int8pack_mm.default)
def weight_int8pack_mm(self: Tensor, mat2: Tensor, scales: Tensor) -> Tensor:
    """Returns self @ mat2.T * scales, computed in float32 and rounded once to the dtype of self."""
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
    """Returns ((self * scale_a) @ (mat2 * scale_b) + bias) * scale_result.

    A scale belongs to the whole matrix, to a row or a column, or to a block.
    """
    product = _scaled_product(self, mat2, scale_a, scale_b)
    if bias is not None:
        product = product + bias.float()
    if scale_result is not None:
        product = product * scale_result.float()
    return product.to(self.dtype if out_dtype is None else out_dtype)


_WHOLE, _ROWS = 0, 1  # values of torch.nn.functional.ScalingType


@decomposes(aten._scaled_mm_v2.default)
def scaled_mm_v2(
    self: Tensor, mat2: Tensor,
    scale_a: Sequence[Tensor], recipe_a: Sequence[int], swizzle_a: Sequence[int],
    scale_b: Sequence[Tensor], recipe_b: Sequence[int], swizzle_b: Sequence[int],
    bias: Tensor | None, out_dtype: torch.dtype | None, contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """Returns ``torch.nn.functional.scaled_mm``.

    Only scales of whole matrices and of rows are supported, because torch defines the others for some GPUs only.
    """
    recipes = {*recipe_a, *recipe_b}
    if not recipes <= {_WHOLE, _ROWS} or any((*swizzle_a, *swizzle_b)) or len(scale_a) + len(scale_b) > 2:
        raise NotImplementedError(
            "scaled_mm supports the scaling types TensorWise and RowWise only, without swizzling. Use one of them."
        )
    product: Tensor = aten._scaled_mm.default(self, mat2, scale_a[0], scale_b[0], bias, None, out_dtype)
    return product


_BLOCK = 128  # torch orders the scales of other block sizes differently


def _scaled_product(self: Tensor, mat2: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    """Returns the product of the scaled matrices, in float32; scales of rows and columns multiply the result."""
    if _has_one_per_line(scale_a, 1) and _has_one_per_line(scale_b, 0):
        return torch.matmul(self.float(), mat2.float()) * scale_a.float() * scale_b.float()
    if torch.float8_e8m0fnu in (scale_a.dtype, scale_b.dtype):
        raise NotImplementedError(
            "scales of float8_e8m0fnu are not supported, because their order depends on the GPU. Use scales of float32."
        )
    return torch.matmul(
        self.float() * _scale_of_each_element(scale_a, self), mat2.float() * _scale_of_each_element(scale_b, mat2)
    )


def _has_one_per_line(scale: Tensor, axis: int) -> bool:
    """Returns whether there is one scale in all, or one for each row (``axis`` 1) or each column (``axis`` 0)."""
    if scale.dim() != 2:
        return scale.dim() == 0 or (scale.dim() == 1 and is_known(scale.shape[0], 1))
    return is_known(scale.shape[axis], 1)


def _scale_of_each_element(scale: Tensor, matrix: Tensor) -> Tensor:
    """Returns the scale of each element.

    Along an axis each element has its own scale, or 128 elements share one; the last block may be smaller.
    """
    scale = scale.float()
    for axis, size in enumerate(matrix.shape if scale.dim() else ()):
        if not statically_known_true(scale.shape[axis] == size):
            scale = scale.repeat_interleave(_BLOCK, axis).narrow(axis, 0, size)
    return scale
