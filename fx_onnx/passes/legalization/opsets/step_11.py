"""Opset 12 → 11."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.core.dtypes import is_float, is_integer
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.opsets.forms import rank_of
from fx_onnx.passes.legalization.opsets.step import (
    OpsetStep,
    UnsupportedNodeError,
    size_of,
)
from fx_onnx.passes.matchers import constant_array, constant_number, is_read

__all__ = ["STEP_11"]

_LONGEST_PRODUCT = 64


def maximum(f: NodeBuilder) -> None:
    """Max(a, b: integers), Min(a, b) → Where(a > b, a, b), Where(a < b, a, b).

    Legal because this is the definition for two integers, and both operators are associative. Floats keep the operator.
    """
    node = f.node
    if is_float(f.dtype):
        return
    first, *rest = [x for x in node.inputs if x is not None]
    compare = f.Greater if node.op_type == "Max" else f.Less
    for index, other in enumerate(rest):
        chosen = [compare(first, other), first, other]
        if index + 1 == len(rest):
            f.editor.replace(node, "Where", chosen, {})
        else:
            first = f.Where(*chosen)
    if not rest:
        f.editor.replace(node, "Identity", [first], {})


def clip(f: NodeBuilder) -> None:
    """Clip(x, low, high) → Min(Max(x, low), high), of integers by comparisons and Where; float32 keeps the Clip.

    Legal because this is the definition of Clip. ONNX Runtime has a Clip of opset 11 for float32 only.
    """
    node = f.node
    x, low, high = (*node.inputs, None, None)[:3]
    if x is None or f.dtype is DataType.FLOAT:
        return
    result: Value = x
    for bound, name, compare in ((low, "Max", "Less"), (high, "Min", "Greater")):
        if bound is not None and is_float(f.dtype):
            result = f.emit(name, [result, bound], {})[0]
        elif bound is not None:
            result = f.Where(f.emit(compare, [result, bound], {})[0], bound, result)
    f.editor.replace(node, "Identity", [result], {})


def power(f: NodeBuilder) -> None:
    """Pow(x, y of another type) → Pow(x, Cast(y)); Pow(x: integers, n) → a product of the squares that n contains.

    Legal because opset 11 has Pow of two floats of one type. An integer exponent of a float is exact in this type up to
    2¹¹ for float16, 2²⁴ for float32 and 2⁵³ for float64. Integers to the power of floats are refused.
    """
    node = f.node
    x, y = node.inputs
    if x is None or y is None:
        return
    if is_float(f.dtype):
        if y.dtype is not x.dtype:
            known = constant_array(y)
            cast = f.Cast(y, to=int(f.dtype)) if known is None else f.constant(known.astype(f.dtype.numpy()))
            f.editor.replace(node, "Pow", [x, cast], {})
        return
    exponent = constant_number(y)
    if exponent is not None and exponent == int(exponent) and 1 <= exponent <= _LONGEST_PRODUCT:
        result = _product(f, x, int(exponent))
    elif y.dtype is None or not is_integer(y.dtype):
        raise UnsupportedNodeError("it raises integers to the power of a float")
    else:
        result = _power_of_integers(f, x, f.Cast(y, to=int(DataType.INT64)))
    f.editor.replace(node, "Identity", [result], {})


def _power_of_integers(f: NodeBuilder, x: Value, exponent: Value) -> Value:
    """Multiplies x², x⁴, … for the bits of the exponent.

    Six bits are enough: the 64th power of other numbers than 0, 1 and -1 is too large for any integer type. To a
    negative power, these become 0, and -1 and 1 stay 1 or -1.
    """
    zero, one = (f.constant(number, DataType.INT64) for number in (0, 1))
    is_negative = f.Less(exponent, zero)
    magnitude = f.Where(is_negative, f.Neg(exponent), exponent)
    square, result = x, f.constant(1)
    for bit in range(6):
        is_set = f.Equal(
            f.Mod(f.Div(magnitude, f.constant(1 << bit, DataType.INT64)), f.constant(2, DataType.INT64)), one
        )
        result = f.Mul(result, f.Where(is_set, square, f.constant(1)))
        square = f.Mul(square, square)
    is_unit = f.Equal(f.Mul(x, x), f.constant(1))
    is_zero = f.And(f.Equal(x, f.constant(0)), f.Not(f.Equal(exponent, zero)))
    vanishes = f.Or(is_zero, f.And(is_negative, f.Not(is_unit)))
    power: Value = f.Where(vanishes, f.constant(0), result)
    return power


def _product(f: NodeBuilder, x: Value, count: int) -> Value:
    """Multiplies x by itself, by repeated squaring."""
    if count == 1:
        return x
    half = _product(f, x, count // 2)
    square: Value = f.Mul(half, half)
    return f.Mul(square, x) if count % 2 else square


def compare_or_equal(f: NodeBuilder) -> None:
    """GreaterOrEqual(a, b) → Or(Greater(a, b), Equal(a, b)), LessOrEqual(a, b) → Or(Less(a, b), Equal(a, b)).

    Legal because this is the definition; for NaN, both comparisons are false.
    """
    node = f.node
    strict = f.emit(node.op_type.removesuffix("OrEqual"), node.inputs, {})[0]
    f.editor.replace(node, "Or", [strict, f.Equal(*node.inputs)], {})


def celu(f: NodeBuilder) -> None:
    """Celu<alpha>(x) → Max(0, x) + Min(0, alpha * (Exp(x / alpha) - 1)).

    Legal because this is the definition of Celu.
    """
    (x,) = f.node.inputs
    alpha = float(f.attribute("alpha", 1.0))
    negative = f.Mul(f.Sub(f.Exp(f.Div(x, alpha)), 1.0), alpha)
    f.editor.replace(f.node, "Add", [f.Max(x, 0.0), f.Min(negative, 0.0)], {})


def dropout(f: NodeBuilder) -> None:
    """Dropout(x) → Identity(x); Dropout(x, ratio, true) → x / (1 - ratio) where RandomUniform ≥ ratio, else 0.

    Legal because a uniform number in [0, 1) is below the ratio with this probability.
    """
    node = f.node
    x, ratio, training = (*node.inputs, None, None)[:3]
    is_training = 0.0 if training is None else constant_number(training)
    if x is None or is_training is None:
        raise UnsupportedNodeError("its training mode is computed at run time")
    probability = 0.5 if ratio is None else constant_number(ratio)
    if is_training and probability is None:
        raise UnsupportedNodeError("its ratio is computed at run time")
    mask = node.outputs[1] if len(node.outputs) > 1 else None
    result, kept = x, None
    if is_training and probability:
        draw = f.RandomUniformLike(x, dtype=int(DataType.FLOAT))
        kept = f.Not(f.Less(draw, f.constant(probability, DataType.FLOAT)))
        scale = 0.0 if probability == 1 else 1 / (1 - probability)
        result = f.Mul(f.Mul(x, scale), f.Cast(kept, to=int(f.dtype)))
    if mask is not None and is_read(mask):
        f.editor.replace_result(mask, kept if kept is not None else f.Expand(f.constant(np.array(True)), f.Shape(x)))
    node.resize_outputs(1)
    f.editor.replace(node, "Identity", [result], {})


def loss(f: NodeBuilder) -> None:
    """NegativeLogLikelihoodLoss(x, t, w), SoftmaxCrossEntropyLoss → GatherElements(x or LogSoftmax(x), t), weighted.

    Legal because these are the definitions: the mean is weighted, and targets that are ignored have the weight 0.
    """
    node = f.node
    x, target, weight = (*node.inputs, None)[:3]
    if x is None or target is None:
        return
    rank = rank_of(x)
    if node.op_type == "SoftmaxCrossEntropyLoss":
        x = _log_softmax(f, x, rank)
        if len(node.outputs) > 1:
            f.editor.replace_result(node.outputs[1], x)
            node.resize_outputs(1)
    ignored = f.attribute("ignore_index")
    zero, one = (f.constant(np.array(number, f.dtype.numpy())) for number in (0, 1))
    counts: Value = one
    place = target
    if ignored is not None:
        is_ignored = f.Equal(target, f.constant(ignored, target.dtype))
        place = f.Where(is_ignored, f.constant(0, target.dtype), target)
        counts = f.Where(is_ignored, zero, one)
    if weight is not None:
        counts = f.Mul(f.Gather(weight, place, axis=0), counts)
    found = f.Squeeze(f.GatherElements(x, f.Unsqueeze(place, axes=[1]), axis=1), axes=[1])
    losses = f.Mul(f.Neg(found), counts)
    if ignored is not None:  # the element of an ignored target may be infinite
        losses = f.Where(is_ignored, zero, losses)
    reduction = f.attribute("reduction", "mean")
    total = losses if reduction == "none" else f.ReduceSum(losses, keepdims=0)
    if reduction == "mean":
        total = f.Div(total, f.ReduceSum(f.Expand(counts, f.Shape(target)), keepdims=0))
    f.editor.replace(node, "Identity", [total], {})


def _log_softmax(f: NodeBuilder, x: Value, rank: int) -> Value:
    """Returns the LogSoftmax over axis 1; the operator of opset 11 is right for the last axis."""
    if rank == 2:
        result: Value = f.LogSoftmax(x, axis=1)
        return result
    swap = [0, rank - 1, *range(2, rank - 1), 1]
    last = f.LogSoftmax(f.Transpose(x, perm=swap), axis=rank - 1)
    swapped: Value = f.Transpose(last, perm=swap)
    return swapped


def constant(f: NodeBuilder) -> None:
    """Constant<value_int>, <value_floats>, ... → Constant<value>.

    Legal because a tensor represents the same numbers.
    """
    ((name, attr),) = f.node.attributes.items()
    dtypes = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    if name in dtypes:
        array = np.array(attr.value, dtypes[name])
        f.editor.replace(f.node, "Constant", [], {"value": ir.AttrTensor("value", ir.Tensor(array))})


def einsum(f: NodeBuilder) -> None:
    """Einsum(a, b) → ReduceSum(Mul(a, b)), with all labels of the equation as axes.

    Legal because this is the definition of Einsum. A product of two matrices becomes MatMul. A label that one operand
    repeats means its diagonal.
    """
    node = f.node
    values = [x for x in node.inputs if x is not None]
    terms, output = _labels(f, values)
    for place in range(len(terms)):
        while len(set(terms[place])) < len(terms[place]):
            values[place], terms[place] = _diagonal(f, values[place], terms[place])
    if len(terms) == 2 and (product := _matrix_product(f, values, terms, output)) is not None:
        f.editor.replace(node, "Identity", [product], {})
        return
    summed = [label for label in dict.fromkeys("".join(terms)) if label not in output]
    order = [*output, *summed]
    result: Value | None = None
    for value, term in zip(values, terms, strict=True):
        spread = _spread(f, value, term, order)
        result = spread if result is None else f.Mul(result, spread)
    axes = list(range(len(output), len(order)))
    if axes:
        f.editor.replace(node, "ReduceSum", [result], {"axes": axes, "keepdims": 0})
    else:
        f.editor.replace(node, "Identity", [result], {})


def _labels(f: NodeBuilder, values: list[Value]) -> tuple[list[str], str]:
    """Returns the labels of the operands and of the result; those of an ellipsis are characters that no equation has.

    Without an arrow, the result has the labels that occur once, in alphabetical order, after those of the ellipsis.
    """
    left, arrow, output = f.attribute("equation").replace(" ", "").partition("->")
    terms = left.split(",")
    counts = [rank_of(x) - len(t.replace("...", "")) if "..." in t else 0 for x, t in zip(values, terms, strict=True)]
    batch = [chr(place) for place in range(0x3B1, 0x3B1 + max(counts, default=0))]
    if not arrow:
        output = "..." + "".join(sorted(each for each in set(left) - set(",.") if left.count(each) == 1))
    terms = [t.replace("...", "".join(batch[len(batch) - count :])) for t, count in zip(terms, counts, strict=True)]
    return terms, output.replace("...", "".join(batch))


def _diagonal(f: NodeBuilder, value: Value, term: str) -> tuple[Value, str]:
    """Returns the diagonal along the axes of the first repeated label, which becomes the last axis, and the labels."""
    label = next(each for each in term if term.count(each) > 1)
    first, second = [place for place, each in enumerate(term) if each == label][:2]
    others = [place for place in range(len(term)) if place not in (first, second)]
    steps = f.Add(size_of(f, value, first), [1])
    flat = f.Reshape(f.Transpose(value, perm=[*others, first, second]), [0] * len(others) + [-1])
    diagonal = f.Slice(flat, [0], [2**63 - 1], [len(others)], steps)
    return diagonal, "".join(term[place] for place in others) + label


def _spread(f: NodeBuilder, value: Value, term: str, order: list[str]) -> Value:
    """Returns the operand with one axis for each label of ``order``; a label that it does not have has size 1."""
    labels = [label for label in order if label in term]
    perm = [term.index(label) for label in labels]
    if perm != list(range(len(perm))):
        value = f.Transpose(value, perm=perm)
    missing = [axis for axis, label in enumerate(order) if label not in term]
    return f.Unsqueeze(value, axes=missing) if missing else value


def _matrix_product(f: NodeBuilder, values: list[Value], terms: list[str], output: str) -> Value | None:
    """Computes an equation by MatMul; None unless each of two operands has one label alone, and one label is summed."""
    first, second = terms
    batch = [label for label in output if label in first and label in second]
    rows = [label for label in output if label in first and label not in second]
    columns = [label for label in output if label in second and label not in first]
    inner = [label for label in first if label in second and label not in output]
    covered = {*batch, *rows, *columns, *inner}
    if len(rows) != 1 or len(columns) != 1 or len(inner) != 1 or covered != {*first, *second}:
        return None
    a = f.Transpose(values[0], perm=[first.index(label) for label in [*batch, *rows, *inner]])
    b = f.Transpose(values[1], perm=[second.index(label) for label in [*batch, *inner, *columns]])
    order = [*batch, *rows, *columns]
    result: Value = f.Transpose(f.MatMul(a, b), perm=[order.index(label) for label in output])
    return result


def gather_nd(f: NodeBuilder) -> None:
    """GatherND<batch_dims> → refused unless batch_dims is 0.

    Legal because both opsets agree where there are no batch axes.
    """
    if f.attribute("batch_dims", 0):
        raise UnsupportedNodeError("it has batch axes")


STEP_11 = OpsetStep(
    11,
    rewrites={
        "Celu": celu,
        "Clip": clip,
        "Constant": constant,
        "Dropout": dropout,
        "Einsum": einsum,
        "GatherND": gather_nd,
        "GreaterOrEqual": compare_or_equal,
        "LessOrEqual": compare_or_equal,
        "Max": maximum,
        "Min": maximum,
        "NegativeLogLikelihoodLoss": loss,
        "Pow": power,
        "SoftmaxCrossEntropyLoss": loss,
    },
)
