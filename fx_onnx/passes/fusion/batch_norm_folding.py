"""Folding of BatchNormalization into the convolution or Gemm before it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import onnx_ir as ir
import torch

from fx_onnx.core.weights import computed
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, initializer_tensor, is_absorbable, producer_of, single_use
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FoldBatchNorm"]

_Tensor = torch.Tensor


class _Scaling(NamedTuple):
    """How a weight is scaled by one factor for each output channel.

    Attributes:
        function: computes the scaled weight from the weight and the factors.
        axis: the axis of the output channels; None for a grouped ConvTranspose, where two axes hold them.
    """

    function: Callable[[_Tensor, _Tensor], _Tensor]
    axis: int | None

    def along(self, axis: int) -> list[int | None] | None:
        """Returns which axis of the weight and of each vector to slice for a slice of the result along ``axis``.

        See ``along`` of ``computed``. None if the result cannot be computed slice by slice.
        """
        return None if self.axis is None else [axis, *[0 if axis == self.axis else None] * 2]


class FoldBatchNorm(Rewrite):
    """BatchNormalization(Conv(x, w, b)) → Conv(x, w', b'); the same for ConvTranspose and Gemm.

    With ``f = scale / sqrt(var + epsilon)`` for each channel, ``w' = w * f`` and ``b' = (b - mean) * f + shift``. They
    are computed when they are first read. Legal for inference, where both operations are linear in x, if w, b and the
    other inputs of the BatchNormalization are initializers. No other node may read ``w`` or the result of the
    convolution.
    """

    name = "fold_batch_norm"
    op_types = ("BatchNormalization",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Folds one BatchNormalization."""
        before = producer_of(node.inputs[0], "Conv", "ConvTranspose", "Gemm")
        if before is None:
            return False
        if not is_absorbable(before.outputs[0]):
            return self.declines(node, "another node reads the %s", before.op_type)
        if attribute(node, "training_mode", 0):
            return self.declines(node, "it is in training mode")
        x, w, *rest = before.inputs
        bias = rest[0] if rest else None
        data, old_bias = initializer_tensor(w), None if bias is None else initializer_tensor(bias)
        statistics = [initializer_tensor(value) for value in node.inputs[1:]]
        if w is None or data is None or not single_use(w) or (bias is not None and old_bias is None):
            return self.declines(node, "the weight or bias is not an initializer, or another node reads the weight")
        known = [tensor for tensor in statistics if tensor is not None]
        scaling = _scaling(before, data, known[0].size) if len(known) == 4 else None
        beta = attribute(before, "beta", 1.0) if before.op_type == "Gemm" else 1.0
        if scaling is None or (old_bias is not None and tuple(old_bias.shape) != (known[0].size,)):
            return self.declines(node, "the statistics are not initializers or have another size than the channels")
        epsilon = attribute(node, "epsilon", 1e-5)
        weight, sizes = functools.partial(_scaled_weight, scaling.function, epsilon), data.shape.numpy()
        new = computed(weight, data, known[0], known[3], dtype=data.dtype, shape=sizes, along=scaling.along)
        made = functools.partial(_shifted_bias, epsilon, beta, ir.tensor_adapters.to_torch_dtype(data.dtype))
        sources = known if old_bias is None else [*known, old_bias]
        offset = computed(made, *sources, dtype=data.dtype, shape=(known[0].size,))
        attributes = {name: attr for name, attr in before.attributes.items() if name != "beta"}
        inputs = [
            x,
            editor.initializer(new, f"{w.name}_folded"),
            editor.initializer(offset, f"{bias.name if bias is not None else f'{w.name}_bias'}_folded"),
        ]
        editor.replace(node, before.op_type, inputs, attributes, absorbed=[before])
        return True


def _scaling(node: ir.Node, weight: ir.TensorProtocol, channels: int) -> _Scaling | None:
    """Returns how the node's weight is scaled; None if the weight does not have this number of output channels."""
    shape = weight.shape.numpy()
    if node.op_type == "Conv":
        return _Scaling(_scale_rows, 0) if shape[0] == channels else None
    if node.op_type == "ConvTranspose":
        groups = attribute(node, "group", 1)
        fits = shape[1] * groups == channels
        return _Scaling(functools.partial(_scale_groups, groups), 1 if groups == 1 else None) if fits else None
    if attribute(node, "transB", 0):
        return _Scaling(_scale_rows, 0) if shape[0] == channels else None
    return _Scaling(torch.mul, 1) if shape[1] == channels else None


def _scale_rows(weight: _Tensor, factor: _Tensor) -> _Tensor:
    return weight * factor.reshape(-1, *[1] * (weight.dim() - 1))


def _scale_groups(groups: int, weight: _Tensor, factor: _Tensor) -> _Tensor:
    """Scales a ConvTranspose weight, which is (in channels, out channels / groups, ...) with groups on axis 0."""
    size = math.prod(weight.shape[2:])
    grouped = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], size)
    return (grouped * factor.reshape(groups, 1, weight.shape[1], 1)).reshape(weight.shape)


def _factor(epsilon: float, scale: _Tensor, var: _Tensor) -> _Tensor:
    return scale.double() / torch.sqrt(var.double() + epsilon)


def _scaled_weight(
    scaled: Callable[[_Tensor, _Tensor], _Tensor], epsilon: float, weight: _Tensor, scale: _Tensor, var: _Tensor
) -> _Tensor:
    wide = torch.promote_types(weight.dtype, torch.float32)
    return scaled(weight.to(wide), _factor(epsilon, scale, var).to(wide)).to(weight.dtype)


def _shifted_bias(
    epsilon: float,
    beta: float,
    dtype: torch.dtype,
    scale: _Tensor,
    shift: _Tensor,
    mean: _Tensor,
    var: _Tensor,
    bias: _Tensor | None = None,
) -> _Tensor:
    old = torch.zeros_like(mean).double() if bias is None else bias.double() * beta
    return ((old - mean.double()) * _factor(epsilon, scale, var) + shift.double()).to(dtype)
