"""Layer, batch, group, instance and RMS normalization."""

from collections.abc import Sequence

import torch
from onnx_ir import Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model.dtypes import value_dtype
from fx_onnx.sizes.symbolic_sizes import Size, may_be_empty
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translations._known_tensors import filled, scale_and_bias


def _has_kernel(
    input: torch.Tensor,
    normalized_shape: Sequence[Size],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> bool:
    """Returns whether all dtypes are equal, and no normalized axis may be empty, which ONNX Runtime refuses."""
    has_one_dtype = all(parameter is None or parameter.dtype == input.dtype for parameter in (weight, bias))
    return has_one_dtype and not any(map(may_be_empty, input.shape[-len(normalized_shape) :]))


@translates(aten.layer_norm.default, supports=_has_kernel)
def aten_layer_norm(
    op: Emitter,
    input: Value,
    normalized_shape: Sequence[Size],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> Value:
    """Emits LayerNormalization: (input - mean) / √(var + eps) * weight + bias over the last axes."""
    if weight is None:
        weight = filled(op, op.sizes(input)[-len(normalized_shape) :], 1.0, value_dtype(input))
    return op.LayerNormalization(input, weight, bias, axis=-len(normalized_shape), epsilon=eps)


def _is_inference(input: torch.Tensor, running_mean: torch.Tensor | None, training: bool) -> bool:
    """Returns whether the call uses running statistics and has a channel axis."""
    return not training and running_mean is not None and input.dim() > 1


@translates(aten.batch_norm.default, supports=_is_inference)
def aten_batch_norm(
    op: Emitter,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Value:
    """Emits BatchNormalization with running statistics."""
    dtype = value_dtype(weight or bias or running_mean)
    weight, bias = scale_and_bias(op, weight, bias, op.sizes(running_mean), dtype)
    return op.BatchNormalization(input, weight, bias, running_mean, running_var, epsilon=eps)


@translates(aten._native_batch_norm_legit_no_training.default)
def aten__native_batch_norm_legit_no_training(
    op: Emitter,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> tuple[Value, Value, Value]:
    """Emits BatchNormalization and two empty tensors for the saved statistics."""
    result = aten_batch_norm(op, input, weight, bias, running_mean, running_var, False, momentum, eps, False)
    empty = filled(op, (0,), 0.0, value_dtype(input))
    return result, empty, empty


def _is_group_norm(input: torch.Tensor, weight: torch.Tensor | None = None) -> bool:
    """Returns whether GroupNormalization can express the call.

    It requires scale and bias of the input's dtype, and at least one spatial axis; the input must not be empty.
    """
    full = all(not isinstance(size, int) or size > 0 for size in input.shape)
    return full and input.dim() > 2 and (weight is None or weight.dtype == input.dtype)


@translates(aten.group_norm.default, since=21, supports=_is_group_norm)
def aten_group_norm(
    op: Emitter,
    input: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-05,
    cudnn_enabled: bool = True,
) -> Value:
    """Emits GroupNormalization; missing weights and biases become ones and zeros."""
    weight, bias = scale_and_bias(op, weight, bias, op.sizes(input)[1:2], value_dtype(input))
    return op.GroupNormalization(input, weight, bias, num_groups=num_groups, epsilon=eps)


def _uses_input_stats(input: torch.Tensor, use_input_stats: bool) -> bool:
    """Returns whether InstanceNormalization can express the call: it uses the statistics of the input only."""
    return use_input_stats and input.dim() > 2 and input.dtype != torch.bfloat16


@translates(aten.instance_norm.default, supports=_uses_input_stats)
def aten_instance_norm(
    op: Emitter,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Value:
    """Emits InstanceNormalization; missing weights and biases become ones and zeros.

    Warns about running statistics: torch updates them, but the ATen schema does not declare it.
    """
    if running_mean is not None or running_var is not None:
        warn(
            "The program does not update the running statistics of instance_norm, because torch.export does not "
            "capture their update; call eval() on the module, or give it track_running_stats=False.",
            MessageId.RUNNING_STATISTICS,
        )
    weight, bias = scale_and_bias(op, weight, bias, op.sizes(input)[1:2], value_dtype(input))
    return op.InstanceNormalization(
        input, op.cast(weight, value_dtype(input)), op.cast(bias, value_dtype(input)), epsilon=eps
    )


def _has_weight_of_input_dtype(input: torch.Tensor, weight: torch.Tensor | None = None) -> bool:
    return not input.is_complex() and (weight is None or weight.dtype == input.dtype)


@translates(aten.rms_norm.default, since=23, supports=_has_weight_of_input_dtype)
def aten_rms_norm(
    op: Emitter, input: Value, normalized_shape: Sequence[Size], weight: Value | None = None, eps: float | None = None
) -> Value:
    """Emits RMSNormalization: input / √(mean(input²) + eps) * weight; eps defaults to that of the dtype."""
    if weight is None:
        weight = filled(op, op.sizes(input)[-len(normalized_shape) :], 1.0, value_dtype(input))
    if eps is None:
        eps = torch.finfo(op.out[0].dtype).eps
    return op.RMSNormalization(input, weight, axis=-len(normalized_shape), epsilon=eps)
