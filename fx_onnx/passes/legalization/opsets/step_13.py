"""Opset 14 → 13."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.core.dtypes import is_float
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.opsets.step import (
    OpsetStep,
    known_rank,
)
from fx_onnx.passes.matchers import constant_integers, dims, is_read

__all__ = ["STEP_13"]


def batch_normalization(f: NodeBuilder) -> None:
    """BatchNormalization<training_mode=1>(x, scale, bias, mean, var) → (x - mean(x)) / Sqrt(var(x)) * scale + bias.

    Legal because this is the definition, as are the new statistics: momentum times the old ones, plus 1 - momentum
    times those of the batch. Without training mode, the operator stays.
    """
    node = f.node
    if not f.attribute("training_mode", 0):
        node.resize_outputs(1)
        return
    x, scale, bias, *old = node.inputs
    rank = known_rank(f)
    axes = [axis for axis in range(rank) if axis != 1]
    mean = f.ReduceMean(x, axes=axes, keepdims=1)
    centered = f.Sub(x, mean)
    variance = f.ReduceMean(f.Mul(centered, centered), axes=axes, keepdims=1)
    normal = f.Div(centered, f.Sqrt(f.Add(variance, float(f.attribute("epsilon", 1e-5)))))
    later = list(range(1, rank - 1))
    scale, bias = (f.Unsqueeze(v, later) if later else v for v in (scale, bias))
    momentum = float(f.attribute("momentum", 0.9))
    for output, before, batch in zip(list(node.outputs[1:]), old, (mean, variance), strict=False):
        if is_read(output):
            statistic = f.Squeeze(batch, axes)
            f.editor.replace_result(output, f.Add(f.Mul(before, momentum), f.Mul(statistic, 1.0 - momentum)))
    node.resize_outputs(1)
    f.editor.replace(node, "Add", [f.Mul(normal, scale), bias], {})


def hard_swish(f: NodeBuilder) -> None:
    """HardSwish(x) → x * HardSigmoid<alpha=1/6, beta=1/2>(x).

    Legal because this is the definition of HardSwish.
    """
    (x,) = f.node.inputs
    f.editor.replace(f.node, "Mul", [x, f.HardSigmoid(x, alpha=1 / 6, beta=0.5)], {})


def relu(f: NodeBuilder) -> None:
    """Relu(x: integers) → Max(x, 0).

    Legal because this is the definition of Relu.
    """
    if not is_float(f.dtype):
        f.editor.replace(f.node, "Max", [f.node.inputs[0], f.constant(0)], {})


def reshape(f: NodeBuilder) -> None:
    """Reshape<allowzero=1>(x, sizes) → If(a size is 0, Expand(0, sizes), Reshape(x, sizes)).

    Legal because a result with a size of 0 has no elements, so the value that is expanded has no effect. The If is left
    out where the sizes are constant, or where each size that may be 0 is that of the same axis of x, which a 0 copies.
    """
    node = f.node
    if not f.attribute("allowzero", 0):
        f.editor.replace(node, "Reshape", list(node.inputs), {})
        return
    x, target = node.inputs
    sizes = constant_integers(target)
    if sizes is not None:
        if 0 in sizes:
            f.editor.replace(node, "Expand", [_zero(f), target], {})
        else:
            f.editor.replace(node, "Reshape", [x, target], {})
        return
    if _copies_zeros(node):
        f.editor.replace(node, "Reshape", [x, target], {})
        return
    least = f.ReduceMin(target, axes=[0], keepdims=0, sizes=())
    is_empty = f.Equal(least, 0, sizes=())
    branches = {
        "then_branch": _branch(f, ir.node("Expand", [_zero(f), target])),
        "else_branch": _branch(f, ir.node("Reshape", [x, target])),
    }
    f.editor.replace(node, "If", [is_empty], {n: ir.AttrGraph(n, graph) for n, graph in branches.items()})


def _copies_zeros(node: ir.Node) -> bool:
    """Returns whether a size of 0 in the result can only be that of the same axis of the input."""
    before, after = dims(node.inputs[0]), dims(node.outputs[0])
    if before is None or after is None:
        return False
    return all(
        (isinstance(size, int) and size > 0) or (axis < len(before) and size == before[axis])
        for axis, size in enumerate(after)
    )


def _zero(f: NodeBuilder) -> Value:
    return f.constant(np.zeros((), f.dtype.numpy()))


def _branch(f: NodeBuilder, made: ir.Node) -> ir.Graph:
    """Returns a graph without inputs that has one node."""
    output = made.outputs[0]
    made.name = output.name = f.editor.unique_name(f"{f.node.name or f.node.outputs[0].name}.{made.op_type}")
    made.metadata_props.update(f.node.metadata_props)
    output.type, output.shape = f.node.outputs[0].type, f.node.outputs[0].shape
    return ir.Graph([], [output], nodes=[made], name=made.name)


def trilu(f: NodeBuilder) -> None:
    """Trilu(x, k) → Where(column - row ≥ k, x, 0), with ≤ for the lower triangle.

    Legal because this is the definition of Trilu.
    """
    node = f.node
    x, k = (*node.inputs, None)[:2]
    if x is None:
        return
    known_rank(f)
    shape = f.Shape(x)
    rows, columns = (f.Squeeze(f.Slice(shape, [a], [b], [0]), [0]) for a, b in ((-2, -1), (-1, 2**63 - 1)))
    zero, one = (f.constant(np.array(number, np.int64)) for number in (0, 1))
    row, column = f.Unsqueeze(f.Range(zero, rows, one), [1]), f.Range(zero, columns, one)
    distance = f.Sub(column, row)
    compare = f.GreaterOrEqual if f.attribute("upper", 1) else f.LessOrEqual
    f.editor.replace(node, "Where", [compare(distance, zero if k is None else k), x, _zero(f)], {})


STEP_13 = OpsetStep(
    13,
    rewrites={
        "BatchNormalization": batch_normalization,
        "HardSwish": hard_swish,
        "Relu": relu,
        "Reshape": reshape,
        "Trilu": trilu,
    },
)
"""Identity of a sequence is refused, because opset 13 admits tensors only."""
