"""Opset 9 → 8."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.core.dtypes import is_float, is_integer
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.opsets.forms import axis_of, rank_of
from fx_onnx.passes.legalization.opsets.loops import Iteration, loop
from fx_onnx.passes.legalization.opsets.step import (
    OpsetStep,
    UnsupportedNodeError,
    static_integers,
)
from fx_onnx.passes.matchers import attribute, constant_array, dims, producer_of

__all__ = ["STEP_8"]

_DOUBLE, _INT64 = DataType.DOUBLE, DataType.INT64

# ---------------------------------------------------------------- comparisons and choices


def compare(f: NodeBuilder) -> None:
    """Less(a, b) of integers, Greater → the same of the high 32 bits, or of the low bits where those are equal.

    Legal because FLOAT64 represents 32 bits exactly, and Div rounds all numbers of one sign in one direction.
    """
    node = f.node
    a, b = node.inputs
    if a is None or b is None or a.dtype is None or is_float(a.dtype):
        return
    if a.dtype is DataType.UINT64:
        raise UnsupportedNodeError("it compares UINT64")
    if a.dtype is not _INT64:
        f.editor.replace(node, node.op_type, [f.Cast(x, to=int(_DOUBLE)) for x in (a, b)], {})
        return
    shift = f.constant(1 << 32, _INT64)
    highs = [f.Div(x, shift) for x in (a, b)]
    lows = [f.Cast(f.Sub(x, f.Mul(h, shift)), to=int(_DOUBLE)) for x, h in zip((a, b), highs, strict=True)]
    high = f.emit(node.op_type, [f.Cast(h, to=int(_DOUBLE)) for h in highs], {})[0]
    low = f.And(f.Equal(*highs), f.emit(node.op_type, lows, {})[0])
    f.editor.replace(node, "Or", [high, low], {})


def is_nan(f: NodeBuilder) -> None:
    """IsNaN(x) → Not(Or(x < 1, x > 0)).

    Legal because every number is less than 1 or greater than 0, and comparisons with NaN are false.
    """
    (x,) = f.node.inputs
    if x is not None:
        zero, one = (f.constant(number, x.dtype) for number in (0.0, 1.0))
        f.editor.replace(f.node, "Not", [f.Or(f.Less(x, one), f.Greater(x, zero))], {})


def where(f: NodeBuilder) -> None:
    """Where(c, a, b) → c * a + (1 - c) * b of integers, Or(And(c, a), And(Not(c), b)) of booleans.

    Legal because a product with 0 is 0 and one with 1 is the number. That holds for two constants that are finite as
    well. Other floats are refused, because 0 times NaN is NaN.
    """
    node = f.node
    condition, a, b = node.inputs
    if f.dtype is DataType.BOOL:
        parts = [f.And(condition, a), f.And(f.Not(condition), b)]
        f.editor.replace(node, "Or", parts, {})
        return
    if not is_integer(f.dtype):
        known = [constant_array(value) for value in (a, b)]
        if any(array is None or not np.isfinite(array).all() for array in known):
            raise UnsupportedNodeError("that opset has no operator that chooses between floats")
    parts = [f.Cast(c, to=int(f.dtype)) for c in (condition, f.Not(condition))]
    f.editor.replace(node, "Add", [f.Mul(part, x) for part, x in zip(parts, (a, b), strict=True)], {})


def sign(f: NodeBuilder) -> None:
    """Sign(x) → Cast(x > 0) - Cast(x < 0), of integers in FLOAT64.

    Legal because this is the definition, and a Cast to FLOAT64 keeps the sign.
    """
    (x,) = f.node.inputs
    if x is None or x.dtype is None:
        return
    value = x if is_float(x.dtype) else f.Cast(x, to=int(_DOUBLE))
    zero = f.constant(0.0, value.dtype)
    dtype = x.dtype if is_float(x.dtype) or x.dtype in (DataType.INT32, _INT64) else DataType.INT32
    signs = [f.Cast(each, to=int(dtype)) for each in (f.Greater(value, zero), f.Less(value, zero))]
    f.editor.replace(f.node, "Cast", [f.Sub(*signs)], {"to": int(x.dtype)})


# ---------------------------------------------------------------- shapes and indices


def constant_of_shape(f: NodeBuilder) -> None:
    """ConstantOfShape<value>(shape) → Expand(value, shape).

    Legal because both repeat the value. The default value is the float 0.
    """
    value = f.attribute("value")
    array = np.zeros(1, np.float32) if value is None else value.numpy()
    f.editor.replace(f.node, "Expand", [f.constant(array.reshape(())), f.node.inputs[0]], {})


def non_zero(f: NodeBuilder) -> None:
    """NonZero(ones of a length) → Loop that collects the numbers of its iterations.

    Legal because all places of a vector of ones are returned, in order. NonZero of other values is refused.
    """
    node = f.node
    maker = producer_of(node.inputs[0], "ConstantOfShape", "Expand")
    length = None if maker is None else maker.inputs[0 if maker.op_type == "ConstantOfShape" else 1]
    ones = None
    if maker is not None:
        value = attribute(maker, "value")
        ones = (
            constant_array(maker.inputs[0]) if maker.op_type == "Expand" else None if value is None else value.numpy()
        )
    if ones is None or ones.size != 1 or not ones.all() or length is None or dims(length) != (1,):
        raise UnsupportedNodeError("that opset has no operator that finds elements")

    def number_of_iteration(b: NodeBuilder, number: Value, carried: Sequence[Value]) -> Iteration:
        return Iteration([b.Identity(*carried)], [number])

    unused = f.constant(0, _INT64)  # a Loop of opset 8 carries a value
    numbers = loop(f, [unused], number_of_iteration, count=f.Squeeze(length, axes=[0], sizes=()))[1]
    f.editor.replace(node, "Unsqueeze", [numbers], {"axes": [0]})


def one_hot(f: NodeBuilder) -> None:
    """OneHot(i, depth, [0, 1]) → Cast(Equal(i, 0, 1, …)).

    Legal because this is the definition for the values 0 and 1 and a constant depth.
    """
    node = f.node
    indices, _, values = node.inputs
    depth = static_integers(f, 1, "depth is")
    known = constant_array(values)
    if known is None or known.tolist() != [0, 1] or depth is None:
        raise UnsupportedNodeError("its values are not 0 and 1")
    rank = rank_of(indices) + 1
    axis = f.attribute("axis", -1) % rank
    numbers = np.arange(depth[0], dtype=np.int64).reshape([-1 if each == axis else 1 for each in range(rank)])
    places = indices if indices is not None and indices.dtype is _INT64 else f.Cast(indices, to=int(_INT64))
    f.editor.replace(
        node, "Cast", [f.Equal(f.Unsqueeze(places, axes=[axis]), f.constant(numbers))], {"to": int(f.dtype)}
    )


def eye_like(f: NodeBuilder) -> None:
    """EyeLike(x) → the matrix as a constant.

    Legal because the matrix depends on the sizes only, which must be static.
    """
    sizes = dims(f.node.inputs[0])
    if sizes is None or not all(isinstance(size, int) for size in sizes):
        raise UnsupportedNodeError("its sizes are not static")
    rows, columns = (int(size) for size in sizes)
    eye = np.eye(rows, columns, k=f.attribute("k", 0), dtype=f.dtype.numpy())
    f.editor.replace(f.node, "Identity", [f.constant(eye)], {})


def flatten(f: NodeBuilder) -> None:
    """Flatten<axis>(x) of other types than floats → Reshape(x, [product before axis, -1]).

    Legal because this is the definition.
    """
    node = f.node
    x = node.inputs[0]
    if is_float(f.dtype):
        return
    axis, sizes = axis_of(f, x, 1), dims(x)
    if axis <= 1:
        f.editor.replace(node, "Reshape", [x, f.constant([0 if axis else 1, -1])], {})
    elif sizes is not None and all(isinstance(size, int) for size in sizes[:axis]):
        before = int(np.prod([int(size) for size in sizes[:axis]]))
        f.editor.replace(node, "Reshape", [x, f.constant([before, -1])], {})
    else:
        raise UnsupportedNodeError("its sizes are not static")


def batch_normalization(f: NodeBuilder) -> None:
    """BatchNormalization(x, …) → BatchNormalization<spatial=1>(x, …).

    Legal because opset 9 has statistics for each channel only.
    """
    f.node.attributes["spatial"] = ir.AttrInt64("spatial", 1)


def upsample(f: NodeBuilder) -> None:
    """Upsample(x, scales) → Upsample<scales>(x).

    Legal because both mean the same for constant scales.
    """
    scales = constant_array(f.node.inputs[1])
    if scales is None:
        raise UnsupportedNodeError("its scales are computed at run time")
    mode = f.attribute("mode", "nearest")
    f.editor.replace(f.node, "Upsample", [f.node.inputs[0]], {"mode": mode, "scales": [float(x) for x in scales]})


def scan(f: NodeBuilder) -> None:
    """Scan(states, sequences) → Scan(, states, sequences) with a first axis of size 1, which is squeezed again.

    Legal because Scan of opset 8 runs over the second axis for each element of a batch. Other axes and directions are
    refused.
    """
    node = f.node
    for name in ("scan_input_axes", "scan_output_axes", "scan_input_directions", "scan_output_directions"):
        if any(f.attribute(name, [])):
            raise UnsupportedNodeError(f"it has {name}")
    batched = [f.Unsqueeze(value, axes=[0]) for value in node.inputs]
    kept = {name: node.attributes[name] for name in ("body", "num_scan_inputs")}
    results = f.emit("Scan", [None, *batched], kept, outputs=len(node.outputs))
    for output, result in zip(list(node.outputs), results, strict=True):
        result.type = output.type
        f.editor.replace_result(output, f.Squeeze(result, axes=[0]))
    node.attributes.pop("body")
    f.editor.remove_if_unused(node)


# ---------------------------------------------------------------- functions


def hyperbolic(f: NodeBuilder) -> None:
    """Cosh(x) → (Exp(x) + Exp(-x)) / 2, Sinh(x) → Tanh(x) * (Exp(x) + Exp(-x)) / 2.

    Legal because these are the definitions; a product with Tanh is accurate near 0 too.
    """
    (x,) = f.node.inputs
    cosh = f.Mul(f.Add(f.Exp(x), f.Exp(f.Neg(x))), 0.5)
    if f.node.op_type == "Cosh":
        f.editor.replace(f.node, "Identity", [cosh], {})
    else:
        f.editor.replace(f.node, "Mul", [f.Tanh(x), cosh], {})


STEP_8 = OpsetStep(
    8,
    rewrites={
        "BatchNormalization": batch_normalization,
        "ConstantOfShape": constant_of_shape,
        "Cosh": hyperbolic,
        "EyeLike": eye_like,
        "Flatten": flatten,
        "Greater": compare,
        "IsNaN": is_nan,
        "Less": compare,
        "NonZero": non_zero,
        "OneHot": one_hot,
        "Scan": scan,
        "Sign": sign,
        "Sinh": hyperbolic,
        "Upsample": upsample,
        "Where": where,
    },
)
