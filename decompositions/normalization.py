"""Decompositions of normalizations into means and variances."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from fx_onnx.decompositions._norms import at_least_float32
from fx_onnx.decompositions.registry import aten, decomposes


def _axes_but_channels(input: Tensor) -> list[int]:
    """Returns all axes but the second one, which holds the channels."""
    return [axis for axis in range(input.dim()) if axis != 1]


def _per_channel(vector: Tensor, like: Tensor) -> Tensor:
    """Returns a vector of channels, shaped to broadcast with ``like``, whose second axis holds the channels."""
    return vector.reshape(vector.shape + (1,) * (like.dim() - 2)) if like.dim() > 2 else vector


def _scale_and_shift(input: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Returns input * weight + bias, for each channel."""
    if weight is not None:
        input = input * _per_channel(weight, input)
    return input if bias is None else input + _per_channel(bias, input)


@decomposes(aten.batch_norm.default)
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Returns the input, normalized by the statistics of the batch.

    Inference with running statistics has a translation, so it never reaches this decomposition.
    """
    return _normalize_by_batch(input, weight, bias, eps)[0]


def _normalize_by_batch(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the normalized input, and the mean and variance over all axes but the channels (keepdim)."""
    axes, exact = _axes_but_channels(input), at_least_float32(input)
    var, mean = torch.var_mean(exact, axes, correction=0, keepdim=True)
    out = _scale_and_shift((exact - mean) / torch.sqrt(var + eps), weight, bias)
    return out.to(input.dtype), mean, var


@decomposes(aten._native_batch_norm_legit.no_stats)
def _native_batch_norm_legit_no_stats(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the input normalized by the statistics of the batch, its mean and 1 / √(var + eps)."""
    out, mean, var = _normalize_by_batch(input, weight, bias, eps)
    axes = _axes_but_channels(input)
    return out, mean.squeeze(axes), (1 / torch.sqrt(var + eps)).squeeze(axes)


@decomposes(aten.native_batch_norm.default)
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the batch norm, and in training the mean and 1 / √(var + eps) of the batch.

    The running statistics are not updated.
    """
    if training or running_mean is None:
        return _native_batch_norm_legit_no_stats(input, weight, bias, True, momentum, eps)
    out = F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return out, input.new_zeros((0,)), input.new_zeros((0,))


@decomposes(aten._native_batch_norm_legit_functional.default)
def _native_batch_norm_legit_functional(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Returns the batch norm, the mean and 1 / √(var + eps), and the new running mean and variance.

    The running variance is updated with the unbiased variance.
    """
    if not training:
        out = F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
        empty = input.new_zeros((0,))
        return out, empty, empty, running_mean, running_var
    out, mean, var = _normalize_by_batch(input, weight, bias, eps)
    axes = _axes_but_channels(input)
    inverse = (1 / torch.sqrt(var + eps)).squeeze(axes)
    mean, var = mean.squeeze(axes), var.squeeze(axes)
    count = math.prod(input.size(axis) for axis in axes)
    new_mean = running_mean * (1 - momentum) + mean * momentum
    new_var = running_var * (1 - momentum) + var * (count / (count - 1)) * momentum
    return out, mean, inverse, new_mean.to(running_mean.dtype), new_var.to(running_var.dtype)


@decomposes(aten.group_norm.default)
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Returns instance_norm with the groups as channels, times weight plus bias for each channel."""
    spatial = math.prod(input.shape[2:])
    groups = input.reshape(input.size(0), num_groups, input.size(1) // num_groups * spatial)
    normal = torch.instance_norm(groups, None, None, None, None, True, 0.0, eps, False)
    return _scale_and_shift(normal.reshape(input.shape), weight, bias).to(input.dtype)


@decomposes(aten.instance_norm.default)
def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Returns the input, normalized over the spatial axes of each channel.

    Without ``use_input_stats`` it is batch norm with the running statistics.
    """
    if not use_input_stats:
        return F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    exact = at_least_float32(input)
    var, mean = torch.var_mean(exact, list(range(2, input.dim())), correction=0, keepdim=True)
    return _scale_and_shift((exact - mean) / torch.sqrt(var + eps), weight, bias).to(input.dtype)


@decomposes(aten.rms_norm.default)
def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Returns input / √(mean(input²) + eps) * weight over the last axes, computed in float32 or float64."""
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    exact = at_least_float32(input)
    mean = (exact * exact).mean(list(range(-len(normalized_shape), 0)), keepdim=True)
    normal = exact / torch.sqrt(mean + eps)
    return (normal if weight is None else normal * weight).to(input.dtype)


@decomposes(aten.layer_norm.default)
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> Tensor:
    """Returns layer_norm, computed in float32: for parameters of another dtype, and for an axis that may be empty."""
    weight, bias = (None if parameter is None else parameter.float() for parameter in (weight, bias))
    if all(isinstance(size, int) and size for size in input.shape[-len(normalized_shape) :]):
        return F.layer_norm(input.float(), normalized_shape, weight, bias, eps).to(input.dtype)
    exact = at_least_float32(input)
    var, mean = torch.var_mean(exact, list(range(-len(normalized_shape), 0)), correction=0, keepdim=True)
    normal = (exact - mean) / torch.sqrt(var + eps)
    normal = normal if weight is None else normal * weight
    return (normal if bias is None else normal + bias).to(input.dtype)


@decomposes(aten.native_layer_norm.default)
def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns layer_norm, the mean and 1 / √(var + eps)."""
    out = F.layer_norm(input, normalized_shape, weight, bias, eps)
    exact = at_least_float32(input)
    var, mean = torch.var_mean(exact, list(range(-len(normalized_shape), 0)), correction=0, keepdim=True)
    return out, mean, 1 / torch.sqrt(var + eps)


@decomposes(aten.native_group_norm.default)
def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns group_norm, the mean and 1 / √(var + eps) of each group."""
    out = F.group_norm(input, group, weight, bias, eps)
    var, mean = torch.var_mean(input.reshape(N, group, C // group * HxW), -1, correction=0)
    return out, mean, 1 / torch.sqrt(var + eps)
