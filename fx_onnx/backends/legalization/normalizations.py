"""Legalization of normalizations and losses."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import known_rank, rank_of, swapped_with_last, with_shape
from fx_onnx.passes.legalization.reductions import fused_norm
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import dims, is_read
from fx_onnx.passes.rules import Result

__all__ = ["has_mixed_scale", "legalize_batch_statistics", "legalize_mixed_squares", "legalize_vectors"]


_HALVES = (DataType.FLOAT16, DataType.BFLOAT16)
_LOSSES = (
    "NegativeLogLikelihoodLoss(x, target, weight | None)",
    "SoftmaxCrossEntropyLoss(x, target, weight | None)",
)


@legalizes(*_LOSSES, targets=("tensorrt",))
@legalizes(*_LOSSES, until=11)
def legalize_losses(f: NodeBuilder, node: ir.Node, x: Value, target: Value, weight: Value | None) -> Result:
    """NegativeLogLikelihoodLoss(x, t, w), SoftmaxCrossEntropyLoss → GatherElements(x or LogSoftmax(x), t), weighted.

    Legal because these are the definitions: the mean is weighted, and targets that are ignored have the weight 0.
    Numbers of 16 bits are summed in float32. TensorRT for RTX (1.7.1) has neither.
    """
    if f.dtype in _HALVES:
        x, weight = f.Cast(x, to=DataType.FLOAT), weight and f.Cast(weight, to=DataType.FLOAT)
    if node.op_type == "SoftmaxCrossEntropyLoss":
        x = _log_softmax(f, x, rank_of(x))
    ignored = f.attribute("ignore_index")
    zero, counts, index = (*(f.constant(number, x.dtype) for number in (0, 1)), target)
    if ignored is not None:
        is_ignored = f.Equal(target, ignored)
        index = f.Where(is_ignored, 0, target)
        counts = f.Where(is_ignored, zero, counts)
    if weight is not None:
        counts = f.Mul(f.Gather(weight, index, axis=0), counts)
    picked = f.Squeeze(f.GatherElements(x, f.Unsqueeze(index, [1]), axis=1), [1])
    losses = f.Mul(f.Neg(picked), counts)
    if ignored is not None:  # the element of an ignored target may be infinite
        losses = f.Where(is_ignored, zero, losses)
    reduction = f.attribute("reduction", "mean")
    total = losses if reduction == "none" else f.ReduceSum(losses, keepdims=0)
    if reduction == "mean":
        total = f.Div(total, f.ReduceSum(f.Expand(counts, f.Shape(target)), keepdims=0))
    results = [total, x][: len(node.outputs)]
    return [result if x.dtype == f.dtype else f.Cast(result, to=f.dtype) for result in results]


def _log_softmax(f: NodeBuilder, x: Value, rank: int) -> Value:
    """Returns the LogSoftmax over axis 1; the operator of opset 11 is right for the last axis."""
    if rank == 2:
        return f.LogSoftmax(x, axis=1)
    swap = swapped_with_last(rank, 1)
    return f.Transpose(f.LogSoftmax(f.Transpose(x, perm=swap), axis=rank - 1), perm=swap)


@legalizes(
    *(f"{op_type}(x)" for op_type in ("Softmax", "LogSoftmax", "Hardmax", "ArgMax", "ArgMin")),
    targets=("tensorrt",),
)
def legalize_vectors(f: NodeBuilder, node: ir.Node, x: Value) -> Result:
    """Softmax(x) → Squeeze(Softmax(Unsqueeze(x))) of a vector; also LogSoftmax, Hardmax, ArgMax and ArgMin.

    Legal because the axis of one row is the same. TensorRT for RTX (1.7.1) needs two axes.
    """
    if len(dims(with_shape(f, x)) or ()) != 1:
        return None
    row = f.emit(node.op_type, [f.Unsqueeze(x, [0])], {**node.attributes, "axis": 1})[0]
    return f.Squeeze(row, [0])


@legalizes("x ** number.exponent", targets=("onnxruntime-cuda",), after_casts=True)
def legalize_mixed_squares(f: NodeBuilder, node: ir.Node, x: Value, exponent: float) -> Result:
    """ReduceMean(Pow(x, 2)) → ReduceMean(x * x), in a norm of bfloat16 and float32.

    Legal because both are the square. ONNX Runtime (1.31.1) fuses a norm with Pow into SimplifiedLayerNormalization,
    of which the CUDA provider has no kernel for these two dtypes, so that the model does not load.
    """
    return f.Mul(x, x) if exponent == 2 and has_mixed_scale(node) else None


def has_mixed_scale(node: ir.Node) -> bool:
    """Returns whether ONNX Runtime fuses a Pow into a norm of bfloat16 with a scale of float32, or vice versa."""
    norm = fused_norm(node)
    return norm is not None and {norm.dtype, norm.scale} == {DataType.BFLOAT16, DataType.FLOAT}


# ---------------------------------------------------------------- older opsets


@legalizes("LayerNormalization(x, scale, bias | None)", until=16)
def normalize_layer(f: NodeBuilder, node: ir.Node, x: Value, scale: Value, bias: Value | None) -> Result:
    """LayerNormalization(x, scale, bias) → (x - mean) / Sqrt(variance + epsilon) * scale + bias.

    Legal because this is the definition of LayerNormalization. The mean and the variance are computed in the type that
    ``stash_type`` names, or in float64 if x has that type. ONNX Runtime fuses this form again.
    """
    rank = known_rank(f)
    axes = list(range(f.attribute("axis", -1) % rank - rank, 0))
    stash = DataType.DOUBLE if f.dtype is DataType.DOUBLE else DataType(f.attribute("stash_type", 1))
    wide = x if stash is f.dtype else f.Cast(x, to=stash)
    mean = f.ReduceMean(wide, axes, keepdims=1)
    centered = f.Sub(wide, mean)
    variance = f.ReduceMean(f.Pow(centered, f.constant(2.0, stash)), axes, keepdims=1)
    deviation = f.Sqrt(f.Add(variance, float(f.attribute("epsilon", 1e-5))))
    normal = f.Div(centered, deviation)
    scaled = f.Mul(normal if stash is f.dtype else f.Cast(normal, to=f.dtype), scale)
    result = scaled if bias is None else f.Add(scaled, bias)
    return [result, mean, f.Reciprocal(deviation)] if len(node.outputs) > 2 else [result, mean][: len(node.outputs)]


@legalizes("BatchNormalization(x, scale, bias, mean, variance)", until=14)
def normalize_batch_in_one_type(
    f: NodeBuilder, node: ir.Node, x: Value, scale: Value, bias: Value, mean: Value, variance: Value
) -> Result:
    """BatchNormalization(x, scale, bias, mean, variance) of mixed types → the same in one type, between Casts.

    Legal because float32 represents all numbers of the narrower types. Opset 15 allows float32 statistics for a float16
    x; opset 14 allows one type for x, scale and bias.
    """
    operands = [x, scale, bias, mean, variance]
    widest = max([operand.dtype for operand in operands if operand.dtype is not None], key=lambda dtype: dtype.bitwidth)
    if all(operand.dtype in (None, widest) for operand in operands):
        return None
    wide = [operand if operand.dtype is widest else f.Cast(operand, to=widest) for operand in operands]
    results = f.emit("BatchNormalization", wide, node.attributes, outputs=len(node.outputs))
    return [f.Cast(result, to=output.dtype) for result, output in zip(results, node.outputs, strict=True)]


@legalizes("BatchNormalization(x, scale, bias, mean, variance)", targets=("tensorrt",))
@legalizes("BatchNormalization(x, scale, bias, mean, variance)", until=13)
def legalize_batch_statistics(
    f: NodeBuilder, node: ir.Node, x: Value, scale: Value, bias: Value, mean: Value, variance: Value
) -> Result:
    """BatchNormalization<training_mode=1>(x, scale, bias, mean, var) → (x - mean(x)) / Sqrt(var(x)) * scale + bias.

    Legal because this is the definition, as are the new statistics: momentum times the old ones, plus 1 - momentum
    times those of the batch. Without training mode, the operator stays. TensorRT has no training mode.
    """
    if not f.attribute("training_mode", 0):
        node.resize_outputs(1)
        return None
    rank = known_rank(f)
    axes = [axis for axis in range(rank) if axis != 1]
    means = f.ReduceMean(x, axes, keepdims=1)
    centered = f.Sub(x, means)
    variances = f.ReduceMean(f.Mul(centered, centered), axes, keepdims=1)
    normal = f.Div(centered, f.Sqrt(f.Add(variances, float(f.attribute("epsilon", 1e-5)))))
    later = list(range(1, rank - 1))
    scale, bias = (f.Unsqueeze(v, later) if later else v for v in (scale, bias))
    momentum = float(f.attribute("momentum", 0.9))
    results: list[Value | None] = [f.Add(f.Mul(normal, scale), bias)]
    for output, before, batch in zip(node.outputs[1:], (mean, variance), (means, variances), strict=False):
        new = f.Add(f.Mul(before, momentum), f.Mul(f.Squeeze(batch, axes), 1.0 - momentum)) if is_read(output) else None
        results.append(new)
    return results


@legalizes("BatchNormalization(x, ...)", until=8)
def normalize_channels(f: NodeBuilder, node: ir.Node) -> Result:
    """BatchNormalization(x, …) → BatchNormalization<spatial=1>(x, …).

    Legal because opset 9 has statistics for each channel only.
    """
    return f.BatchNormalization(*node.inputs, **node.attributes, spatial=1)
