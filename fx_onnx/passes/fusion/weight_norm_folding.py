"""Folding of weight normalization into the weight."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir
import torch

from fx_onnx.core.weights import Along, computed, elementwise
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import (
    attribute,
    commuted_inputs,
    constant_integers,
    initializer_tensor,
    same_shape,
    single_use_producer,
)
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FoldWeightNorm"]


class _Product(NamedTuple):
    """The nodes and the weights of ``v * (g / ReduceL2(v))``."""

    v: ir.Value
    g: ir.Value
    norm: ir.Node
    quotient: ir.Node
    product: ir.Node


class FoldWeightNorm(Rewrite):
    """v * (g / ReduceL2(v)) → an initializer, computed when it is first read: a weight with weight normalization.

    Legal because no caller can override the weights v and g. Applies where nothing else reads them.
    """

    name = "fold_weight_norm"
    op_types = ("Mul",)
    producers = frozenset({"Div"})

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Folds all products of the same weights: a module that runs twice has two."""
        found = _matched(node)
        if found is None:
            return False
        v, g = initializer_tensor(found.v), initializer_tensor(found.g)
        if v is None or g is None or editor.function is not None:
            return self.declines(node, "a caller can override a weight")
        products = _products(found)
        if products is None:
            return self.declines(node, "another node reads a weight, or the model returns it")
        axes = _axes(found.norm) or list(range(len(v.shape)))
        function = functools.partial(_normalized, axes)
        along = _along(axes, g.shape.numpy(), len(v.shape))
        data = computed(function, v, g, dtype=v.dtype, shape=v.shape.numpy(), along=along)
        weight = editor.initializer(data, f"{found.v.name}_folded")
        for each in products:
            editor.replace_with_value(each, weight)
        return True


def _matched(node: ir.Node) -> _Product | None:
    """Returns the parts of the product that the node computes; None if it is another product."""
    if node.op_type != "Mul" or node.domain:
        return None
    for v, factor in commuted_inputs(node):
        quotient = single_use_producer(factor, "Div")
        norm = None if quotient is None else single_use_producer(quotient.inputs[1], "ReduceL2")
        if v is None or quotient is None or norm is None or norm.inputs[0] is not v:
            continue
        g = quotient.inputs[0]
        if g is not None and same_shape(v, node.outputs[0]) and _axes(norm) is not None:
            return _Product(v, g, norm, quotient, node)
    return None


def _axes(norm: ir.Node) -> list[int] | None:
    """Returns the axes of the norm, none for all; None if they are computed or the norm does not keep them."""
    given = norm.inputs[1] if len(norm.inputs) > 1 else None
    if given is None:
        return None if attribute(norm, "noop_with_empty_axes", 0) else []
    return constant_integers(given) if attribute(norm, "keepdims", 1) else None


def _products(found: _Product) -> list[ir.Node] | None:
    """Returns all products like the given one, if nothing else reads their weights; else None.

    A module that runs twice computes its weight twice.
    """
    if any(value.is_graph_output() for value in (found.v, found.g, found.product.outputs[0])):
        return None
    known = [
        match
        for use in found.v.uses()
        if (match := _matched(use.node)) is not None
        and match[:2] == found[:2]
        and _axes(match.norm) == _axes(found.norm)
        and match.norm.attributes == found.norm.attributes
        and not match.product.outputs[0].is_graph_output()
    ]
    readers = {use.node for value in found[:2] for use in value.uses()}
    return [each.product for each in known] if readers == {part for each in known for part in each[2:]} else None


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
