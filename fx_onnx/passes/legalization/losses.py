"""Legalization of losses."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import rank_of, swapped_with_last
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.rules import Result

__all__ = list[str]()


@legalizes(
    "NegativeLogLikelihoodLoss(x, target, weight | None)",
    "SoftmaxCrossEntropyLoss(x, target, weight | None)",
    until=11,
)
def gather_losses(f: NodeBuilder, node: ir.Node, x: Value, target: Value, weight: Value | None) -> Result:
    """NegativeLogLikelihoodLoss(x, t, w), SoftmaxCrossEntropyLoss → GatherElements(x or LogSoftmax(x), t), weighted.

    Legal because these are the definitions: the mean is weighted, and targets that are ignored have the weight 0.
    """
    if node.op_type == "SoftmaxCrossEntropyLoss":
        x = _log_softmax(f, x, rank_of(x))
    ignored = f.attribute("ignore_index")
    counts, place = f.constant(1), target
    if ignored is not None:
        is_ignored = f.Equal(target, ignored)
        place = f.Where(is_ignored, 0, target)
        counts = f.Where(is_ignored, f.constant(0), counts)
    if weight is not None:
        counts = f.Mul(f.Gather(weight, place, axis=0), counts)
    found = f.Squeeze(f.GatherElements(x, f.Unsqueeze(place, [1]), axis=1), [1])
    losses = f.Mul(f.Neg(found), counts)
    if ignored is not None:  # the element of an ignored target may be infinite
        losses = f.Where(is_ignored, 0, losses)
    reduction = f.attribute("reduction", "mean")
    total = losses if reduction == "none" else f.ReduceSum(losses, keepdims=0)
    if reduction == "mean":
        total = f.Div(total, f.ReduceSum(f.Expand(counts, f.Shape(target)), keepdims=0))
    return [total, x][: len(node.outputs)]


def _log_softmax(f: NodeBuilder, x: Value, rank: int) -> Value:
    """Returns the LogSoftmax over axis 1; the operator of opset 11 is right for the last axis."""
    if rank == 2:
        return f.LogSoftmax(x, axis=1)
    swap = swapped_with_last(rank, 1)
    return f.Transpose(f.LogSoftmax(f.Transpose(x, perm=swap), axis=rank - 1), perm=swap)
