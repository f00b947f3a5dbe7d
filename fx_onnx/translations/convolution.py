"""Convolutions: ONNX Conv and ConvTranspose, which take torch's weight layouts."""

import operator
from collections.abc import Sequence
from typing import Any

from onnx_ir import Value
from torch import Tensor

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translations._spatial import over_batch, per_axis, widened_or_double


def _spatial_kernel(op: Emitter, weight: Value) -> list[int] | None:
    """Returns the kernel's sizes, or None if one is dynamic; ONNX then infers them from the weight."""
    sizes = op.sizes(weight)[2:]
    return [size for size in sizes if isinstance(size, int)] if all(isinstance(s, int) for s in sizes) else None


def _has_attributes(padding: Sequence[int] = (0,), groups: int = 1) -> bool:
    """Returns whether pads and groups are numbers: they are attributes in ONNX, and may be sizes in torch."""
    return all(isinstance(number, int) for number in (*padding, groups))


@translates(aten.conv1d.default, aten.conv2d.default, aten.conv3d.default, supports=_has_attributes)
def aten_conv(
    op: Emitter,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Value:
    """Emits Conv with symmetric pads."""
    axes = op.rank(weight) - 2
    pads = per_axis(padding, axes)
    return _conv(op, input, weight, bias, per_axis(stride, axes), [*pads, *pads], per_axis(dilation, axes), groups)


def _has_static_padding(weight: Tensor, padding: str = "valid", groups: int = 1) -> bool:
    """Returns whether the pads and the groups are known at export."""
    return _has_attributes(weight.shape[2:] if padding == "same" else (), groups)


@translates(aten.conv1d.padding, aten.conv2d.padding, aten.conv3d.padding, supports=_has_static_padding)
def aten_conv_padding(
    op: Emitter,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: str = "valid",
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Value:
    """Emits Conv with pads from "same" or "valid".

    "same" (for stride 1) pads by dilation * (kernel - 1); an odd total has the larger half at the end.
    """
    kernel = _spatial_kernel(op, weight)
    axes = op.rank(weight) - 2
    steps = per_axis(dilation, axes)
    pads = [0] * (2 * axes)
    if padding == "same" and kernel is not None:
        reach = [step * (size - 1) for step, size in zip(steps, kernel, strict=True)]
        pads = [total // 2 for total in reach] + [total - total // 2 for total in reach]
    return _conv(op, input, weight, bias, per_axis(stride, axes), pads, steps, groups)


def _conv(
    op: Emitter,
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: list[int],
    pads: list[int],
    dilation: list[int],
    groups: int,
) -> Value:
    """Emits one Conv node."""
    operands = _operands(op, "Conv", weight, bias)
    attributes: dict[str, Any] = {
        "kernel_shape": _spatial_kernel(op, weight),
        "strides": stride,
        "pads": pads,
        "dilations": dilation,
        "group": groups,
    }
    result = over_batch(
        op, widened_or_double(op, "Conv", input), len(stride), lambda x: op.Conv(x, *operands, **attributes)
    )
    return op.cast(result, op.out_dtype)


def _operands(op: Emitter, op_type: str, weight: Value, bias: Value | None) -> tuple[Value, Value | None]:
    weight = widened_or_double(op, op_type, weight)
    return weight, None if bias is None else widened_or_double(op, op_type, bias)


def _is_expressible_transpose(
    weight: Tensor,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
) -> bool:
    """Returns whether padding and groups are constant, and each output_padding is below the stride.

    ONNX requires this; torch also allows sizes, and values below the dilation.
    """
    axes = weight.dim() - 2
    return _has_attributes((*padding, *output_padding), groups) and all(
        map(operator.lt, per_axis(output_padding, axes), per_axis(stride, axes))
    )


@translates(
    aten.conv_transpose1d.default,
    aten.conv_transpose2d.input,
    aten.conv_transpose3d.input,
    supports=_is_expressible_transpose,
)
def aten_conv_transpose(
    op: Emitter,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
    dilation: Sequence[int] = (1,),
) -> Value:
    """Emits ConvTranspose, the gradient of Conv with respect to its input; output_padding extends the end."""
    axes = op.rank(weight) - 2
    pads = per_axis(padding, axes)
    operands = _operands(op, "ConvTranspose", weight, bias)
    extra = per_axis(output_padding, axes)
    attributes: dict[str, Any] = {
        "kernel_shape": _spatial_kernel(op, weight),
        "strides": per_axis(stride, axes),
        "pads": [*pads, *pads],
        "dilations": per_axis(dilation, axes),
        "output_padding": extra if any(extra) else None,
        "group": groups,
    }
    result = over_batch(
        op, widened_or_double(op, "ConvTranspose", input), axes, lambda x: op.ConvTranspose(x, *operands, **attributes)
    )
    return op.cast(result, op.out_dtype)


def _is_expressible_convolution(
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> bool:
    """Returns whether Conv or ConvTranspose can express the call."""
    if not transposed:
        return _has_attributes(padding, groups)
    return _is_expressible_transpose(weight, stride, padding, output_padding, groups)


@translates(aten.convolution.default, supports=_is_expressible_convolution)
def aten_convolution(
    op: Emitter,
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    """Emits Conv or ConvTranspose of any rank."""
    if transposed:
        return aten_conv_transpose(op, input, weight, bias, stride, padding, output_padding, groups, dilation)
    return aten_conv(op, input, weight, bias, stride, padding, dilation, groups)


@translates(aten._convolution.default, aten._convolution.deprecated, supports=_is_expressible_convolution)
def aten__convolution(
    op: Emitter,
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    benchmark: bool,
    deterministic: bool,
    cudnn_enabled: bool,
    allow_tf32: bool = True,
) -> Value:
    """Emits Conv or ConvTranspose; the additional flags choose an algorithm, not a result."""
    return aten_convolution(op, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
