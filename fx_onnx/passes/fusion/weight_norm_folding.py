"""Folding of weight normalization into the weight."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import onnx_ir as ir
import torch
from onnx_ir import Value

from fx_onnx.core.weights import Along, computed, elementwise
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import initializer_tensor, same_shape
from fx_onnx.passes.rules import Result, rule

__all__ = ["fold_weight_norm"]


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
    products = [each for each in readers if _are_equal(each, node)]
    norms = [each for each in readers if each not in products]
    quotients = {use.node for norm in norms for use in norm.outputs[0].uses()}
    ends = {use.node for quotient in quotients for use in quotient.outputs[0].uses()}
    is_returned = any(value.is_graph_output() for value in (v, g, *[each.outputs[0] for each in products]))
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
