"""Fusion around Gemm, MatMul and Conv: addends, Transposes, batch and weight normalization, padding."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx.onnx_model.weights import Along, computed, elementwise
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import attribute, dims, initializer_tensor, permutation_of, same_shape, single_use
from fx_onnx.passes.rules import Result, rule

__all__ = ["batch_gemm", "fold_batch_norm", "fold_pads", "fold_weight_norm", "fuse_gemm"]

_TYPES = (DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16)


@rule("Reshape(Gemm(~Reshape(x, _), w, c | None, alpha=1.0, beta=1.0, transA=0, transB=0), _)")
def batch_gemm(f: NodeBuilder, node: ir.Node, nodes: Sequence[ir.Node], x: Value, w: Value, c: Value | None) -> Result:
    """Reshape(Gemm(Reshape(x), w, c)) → Add(MatMul(x, w), c), without the Add where there is no c.

    The Conv1D layer of GPT-2 in transformers has this form. Legal where the Reshapes only flatten and unflatten the
    leading axes, c has one axis, and the Gemm neither scales nor transposes. No other node may read the Gemm.
    """
    sizes, result, rows, columns = map(dims, (x, node.outputs[0], nodes[2].outputs[0], w))
    if not sizes or not result or not rows or sizes[:-1] != result[:-1] or sizes[-1] != rows[-1]:
        return "the Reshapes change more than the leading axes"
    if columns is None or result[-1] != columns[1] or (c is not None and dims(c) != (columns[1],)):
        return "the addend is not one number for each column"
    product = f.MatMul(x, w)
    return product if c is None else f.Add(product, c)


def _may_be_gemm(node: ir.Node) -> bool:
    result = node.outputs[0]
    return result.dtype in _TYPES and (result.shape is None or _is_matrix(result))


@rule(
    "MatMul(_, _) + c",
    "Gemm(_, _, beta=1.0) + c",
    "(MatMul | Gemm)(~Transpose(_), ...)",
    "(MatMul | Gemm)(_, ~Transpose(_), ...)",
    where={"node": _may_be_gemm},
)
def fuse_gemm(f: NodeBuilder, node: ir.Node, nodes: Sequence[ir.Node], c: Value | None) -> Result:
    """MatMul(a, b) + c → Gemm(a, b, c); MatMul(aᵀ, bᵀ) → Gemm(a, b, transA=1, transB=1).

    Legal for floats where a and b are matrices and c broadcasts to the shape of the product without widening it. No
    other node may read the product. A MatMul without an addend becomes a Gemm only where that saves a Transpose.
    """
    product = node if c is None else nodes[1]
    if not (_is_matrix(product.inputs[0]) and _is_matrix(product.inputs[1])):
        return None
    operands, attributes = list(product.inputs), dict(product.attributes)
    if c is not None:
        if not _broadcasts(c, product, node.outputs[0]):
            return f"the addend, of shape {c.shape}, would widen the product"
        return f.Gemm(*operands, c, **attributes)
    transpose = nodes[1]
    if permutation_of(transpose) != [1, 0]:
        return None
    for index, name in enumerate(("transA", "transB")):
        if operands[index] is transpose.outputs[0]:
            operands[index] = transpose.inputs[0]
            attributes[name] = 1 - attribute(node, name, 0)
    return f.Gemm(*operands, **attributes)


def _is_matrix(value: Value | None) -> bool:
    return value is not None and value.shape is not None and len(value.shape) == 2


def _broadcasts(addend: Value, product: ir.Node, result: Value) -> bool:
    """Returns whether the addend broadcasts to the product's shape without widening it."""
    sizes, a, b = dims(addend), dims(product.inputs[0]), dims(product.inputs[1])
    if sizes is None or a is None or b is None or len(sizes) > 2:
        return False
    target = (a[attribute(product, "transA", 0)], b[1 - attribute(product, "transB", 0)])
    return target == dims(result) and all(
        size in (1, whole) for size, whole in zip(sizes[::-1], target[::-1], strict=False)
    )


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
    sizes, channels = data.shape.numpy(), known[0].size if len(known) == 4 else -1
    scaling = _scaling(before, sizes, channels)
    if scaling is None or (old_bias is not None and old_bias.shape.numpy() != (channels,)):
        return "the statistics are not initializers or have another size than the channels"
    epsilon, beta = f.attribute("epsilon", 1e-5), attribute(before, "beta", 1.0)
    weight = functools.partial(_scaled_weight, scaling.function, epsilon)
    new = computed(weight, data, known[0], known[3], dtype=data.dtype, shape=sizes, along=scaling.along)
    made = functools.partial(_shifted_bias, epsilon, beta, ir.tensor_adapters.to_torch_dtype(data.dtype))
    sources = known if old_bias is None else [*known, old_bias]
    offset = computed(made, *sources, dtype=data.dtype, shape=(channels,))
    inputs = [
        x,
        f.editor.initializer(new, f"{w.name}_folded"),
        f.editor.initializer(offset, f"{bias.name if bias is not None else f'{w.name}_bias'}_folded"),
    ]
    return f.emit(before.op_type, inputs, before.attributes.data | {"beta": None})[0]


def _scaling(node: ir.Node, shape: Sequence[int], channels: int) -> _Scaling | None:
    """Returns how a weight of the node is scaled; None if its shape does not have this number of output channels."""
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
    for index, axis in enumerate((range(rank) if axes is None else axes) if rank else ()):
        whole[axis % rank], whole[axis % rank + rank] = added[index], added[index + len(added) // 2]
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


@rule("v * (g / ReduceL2(v, integers.axes, keepdims=1))", "v * (g / ReduceL2(v, noop_with_empty_axes=0))")
def fold_weight_norm(f: NodeBuilder, node: ir.Node, v: Value, g: Value, axes: list[int] | None) -> Result:
    """v * (g / ReduceL2(v)) → an initializer, computed when it is first read: a weight with weight normalization.

    Legal because no caller can override the weights v and g. Applies where nothing else reads them, but for equal
    products: a module that runs twice computes its weight twice.
    """
    data, gain = initializer_tensor(v), initializer_tensor(g)
    if not same_shape(v, node.outputs[0]):
        return None
    if data is None or gain is None or f.editor.function is not None:
        return "a caller can override a weight"
    if not _are_read_by_equals(node, v, g):
        return "another node reads a weight, or the model returns it"
    axes = axes or list(range(len(data.shape)))
    along = _along(axes, gain.shape.numpy(), len(data.shape))
    function, sizes = functools.partial(_normalized, axes), data.shape.numpy()
    folded = computed(function, data, gain, dtype=data.dtype, shape=sizes, along=along)
    weight = f.editor.initializer(folded, f"{v.name}_folded")
    for use in v.uses():
        if use.node is not node and _are_equal(use.node, node):
            f.editor.replace_with_value(use.node, weight)
    return weight


def _are_read_by_equals(node: ir.Node, v: Value, g: Value) -> bool:
    """Returns whether only products equal to the node read the weights, and the model returns none of these values."""
    readers = [use.node for use in v.uses()]
    products = [reader for reader in readers if _are_equal(reader, node)]
    norms = [reader for reader in readers if reader not in products]
    quotients = {use.node for norm in norms for use in norm.outputs[0].uses()}
    ends = {use.node for quotient in quotients for use in quotient.outputs[0].uses()}
    is_returned = any(value.is_graph_output() for value in (v, g, *[product.outputs[0] for product in products]))
    return not is_returned and ends == set(products) and quotients == {use.node for use in g.uses()}


def _are_equal(first: ir.Node | None, second: ir.Node | None) -> bool:
    """Returns whether two nodes compute the same, by operators, attributes and inputs."""
    if first is None or second is None or first is second:
        return first is second
    if (first.op_type, first.domain, first.attributes) != (second.op_type, second.domain, second.attributes):
        return False
    pairs = itertools.zip_longest(first.inputs, second.inputs)
    return all(x is y or (x and y and _are_equal(x.producer(), y.producer())) for x, y in pairs)


def _normalized(axes: Sequence[int], v: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    wide = torch.promote_types(v.dtype, torch.float32)
    norm: torch.Tensor = torch.linalg.vector_norm(v, dim=list(axes), keepdim=True, dtype=wide)
    return (v.to(wide) * (g.to(wide) / norm)).to(v.dtype)


def _along(axes: Sequence[int], sizes: Sequence[int], rank: int) -> Along:
    """Returns how to compute a piece: the norm needs all elements along its axes."""
    others = elementwise([sizes], rank)

    def along(axis: int) -> list[int | None] | None:
        return None if axis in axes or axis - rank in axes else [axis, *(others(axis) or ())]

    return along
