"""Folding into convolutions: of a BatchNormalization after one, and of zero padding before one or before pooling."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import onnx_ir as ir
import torch
from onnx_ir import Value

from fx_onnx.core.weights import computed
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import attribute, dims, initializer_tensor, single_use
from fx_onnx.passes.rules import Result, rule

__all__ = ["fold_batch_norm", "fold_pads"]

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


@rule("BatchNormalization((Conv | ConvTranspose | Gemm)(x, w, bias | None), *statistics, training_mode=0)")
def fold_batch_norm(
    f: NodeBuilder, nodes: Sequence[ir.Node], x: Value, w: Value, bias: Value | None, statistics: Sequence[Value]
) -> Result:
    """BatchNormalization(Conv(x, w, b)) → Conv(x, w', b'); the same for ConvTranspose and Gemm.

    With ``f = scale / sqrt(var + epsilon)`` for each channel, ``w' = w * f`` and ``b' = (b - mean) * f + shift``. They
    are computed when they are first read. Legal for inference, where both operations are linear in x, if w, b and the
    other inputs of the BatchNormalization are initializers. No other node may read ``w`` or the result of the
    convolution.
    """
    before, data, old_bias = nodes[1], initializer_tensor(w), initializer_tensor(bias)
    if data is None or not single_use(w) or (bias is not None and old_bias is None):
        return "the weight or bias is not an initializer, or another node reads the weight"
    known = [tensor for tensor in map(initializer_tensor, statistics) if tensor is not None]
    scaling = _scaling(before, data, known[0].size) if len(known) == 4 else None
    if scaling is None or (old_bias is not None and tuple(old_bias.shape) != (known[0].size,)):
        return "the statistics are not initializers or have another size than the channels"
    epsilon, beta = f.attribute("epsilon", 1e-5), attribute(before, "beta", 1.0)
    weight, sizes = functools.partial(_scaled_weight, scaling.function, epsilon), data.shape.numpy()
    new = computed(weight, data, known[0], known[3], dtype=data.dtype, shape=sizes, along=scaling.along)
    made = functools.partial(_shifted_bias, epsilon, beta, ir.tensor_adapters.to_torch_dtype(data.dtype))
    sources = known if old_bias is None else [*known, old_bias]
    offset = computed(made, *sources, dtype=data.dtype, shape=(known[0].size,))
    inputs = [
        x,
        f.editor.initializer(new, f"{w.name}_folded"),
        f.editor.initializer(offset, f"{bias.name if bias is not None else f'{w.name}_bias'}_folded"),
    ]
    attributes = {name: attr for name, attr in before.attributes.items() if name != "beta"}
    return f.emit(before.op_type, inputs, attributes)[0]


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


_PAD = "Pad(x, integers.added, 0.0 | None, integers.axes | None, mode='constant')"


@rule(
    f"Conv({_PAD}, *rest, auto_pad='NOTSET')",
    f"AveragePool({_PAD}, count_include_pad=1, ceil_mode=0, auto_pad='NOTSET')",
)
def fold_pads(
    f: NodeBuilder,
    node: ir.Node,
    x: Value,
    added: list[int],
    axes: list[int] | None,
    rest: Sequence[Value] | None,
) -> Result:
    """Conv(Pad(x)) → Conv(x) with larger ``pads``; AveragePool(Pad(x)) → AveragePool(x) if it counts its padding.

    Legal where the Pad adds constant zeros, at spatial axes only, and removes nothing. No other node may read it.
    """
    rank = len(dims(x) or ())
    whole = [0] * 2 * rank
    for place, axis in enumerate((range(rank) if axes is None else axes) if rank else ()):
        whole[axis % rank], whole[axis % rank + rank] = added[place], added[place + len(added) // 2]
    if not rank or min(whole) < 0 or any(whole[:2] + whole[rank : rank + 2]):
        return "the Pad is not at spatial axes only, or removes elements"
    new = whole[2:rank] + whole[rank + 2 :]
    old = f.attribute("pads", [0] * len(new))
    summed = [first + second for first, second in zip(old, new, strict=True)]
    if node.op_type == "AveragePool":
        if any(old):  # the divisor counts the two kinds of padding differently
            return "the AveragePool has padding already"
        if any(pad >= size for pad, size in zip(summed, f.attribute("kernel_shape") * 2, strict=True)):
            return "the padding is as large as the window"
    return f.emit(node.op_type, [x, *(rest or ())], {**node.attributes, "pads": summed})[0]
