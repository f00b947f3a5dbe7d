"""Opset 10 → 9."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_ir import DataType, Value

from fx_onnx.core.dtypes import is_float
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.opsets.forms import (
    axis_of,
    counted,
    rank_of,
    round_half_to_even,
    scalar_size,
    sizes_of,
)
from fx_onnx.passes.legalization.opsets.step import OpsetStep, UnsupportedNodeError, static_integers
from fx_onnx.passes.matchers import constant_array, dims

__all__ = ["STEP_9"]

_INT64 = DataType.INT64

# ---------------------------------------------------------------- parts of tensors


def slice_(f: NodeBuilder) -> None:
    """Slice(x, starts, ends, axes, steps) → Slice<starts, ends, axes>(x), or Gather of each axis at start + i * step.

    Legal because both take the same elements. The attributes are for constant bounds and steps of 1.
    """
    node = f.node
    x = node.inputs[0]
    axes = static_integers(f, 3, "axes are")
    if x is None:
        return
    given = [None if value is None else constant_array(value) for value in (*node.inputs, None, None, None)[1:5]]
    starts, ends, steps = given[0], given[1], static_integers(f, 4, "steps are")
    count = len(axes) if axes is not None else next((len(each) for each in (starts, ends) if each is not None), None)
    if count is None:
        raise UnsupportedNodeError("its axes are not known")
    axes, steps = axes or list(range(count)), steps or [1] * count
    if starts is not None and ends is not None and all(step == 1 for step in steps):
        bounds = {"starts": [int(start) for start in starts], "ends": [int(end) for end in ends]}
        f.editor.replace(node, "Slice", [x], {**bounds, "axes": axes})
        return
    result = x
    for place, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        size = sizes_of(x)[axis]
        if isinstance(size, int) and starts is not None and ends is not None:
            places = _known_places(int(starts[place]), int(ends[place]), size, step)
            result = f.Gather(result, f.constant(places), axis=axis)
        else:
            result = f.Gather(result, _places(f, x, place, axis, step), axis=axis)
    f.editor.replace(node, "Identity", [result], {})


def _known_places(start: int, end: int, size: int, step: int) -> list[int]:
    """Returns the indices of a slice; bounds are clamped as in ``_bound``."""
    start, end = (bound + size if bound < 0 else bound for bound in (start, end))
    last, least = (size, 0) if step > 0 else (size - 1, -1)
    return list(range(min(max(start, 0), last), min(max(end, least), last), step))


def _places(f: NodeBuilder, x: Value, place: int, axis: int, step: int) -> Value:
    """Returns the indices of a slice of one axis, whose bounds are at ``place``."""
    size = scalar_size(f, x, axis)
    start = _bound(f, f.node.inputs[1], place, size, step, 0)
    end = _bound(f, f.node.inputs[2], place, size, step, 0 if step > 0 else -1)
    reach = f.Sub(end, start, sizes=()) if step > 0 else f.Sub(start, end, sizes=())
    length = f.Div(f.Add(reach, f.constant(abs(step) - 1, _INT64), sizes=()), f.constant(abs(step), _INT64), sizes=())
    places = counted(f, _at_least(f, length, 0))
    result: Value = f.Add(f.Mul(places, [step]) if step != 1 else places, start)
    return result


def _bound(f: NodeBuilder, values: Value | None, place: int, size: Value, step: int, least: int) -> Value:
    """Returns a bound of a slice as ONNX clamps it: at least ``least``, and at most the size or the last index."""
    bound = f.Gather(values, f.constant(place, _INT64), axis=0, sizes=())
    if values is not None and values.dtype is not _INT64:
        bound = f.Cast(bound, to=int(_INT64), sizes=())
    zero = f.constant(0, _INT64)
    bound = f.Where(f.Less(bound, zero, sizes=()), f.Add(bound, size, sizes=()), bound, sizes=())
    last = size if step > 0 else f.Sub(size, f.constant(1, _INT64), sizes=())
    bound = f.Where(f.Greater(bound, last, sizes=()), last, bound, sizes=())
    return _at_least(f, bound, least)


def _at_least(f: NodeBuilder, value: Value, least: int) -> Value:
    low = f.constant(least, _INT64)
    result: Value = f.Where(f.Less(value, low, sizes=()), low, value, sizes=())
    return result


def top_k(f: NodeBuilder) -> None:
    """TopK(x, k) → TopK<k>(x).

    Legal because both mean the same for a constant k.
    """
    (count,) = static_integers(f, 1, "k is") or [0]
    x = f.node.inputs[0]
    f.editor.replace(f.node, "TopK", [x], {"axis": axis_of(f, x, -1), "k": count})


# ---------------------------------------------------------------- pooling and resizing


def pool(f: NodeBuilder) -> None:
    """MaxPool<ceil_mode=1>(x), AveragePool<ceil_mode=1> → the same with more padding at the end, for static sizes.

    Legal because padding counts neither for a maximum nor for an average without ``count_include_pad``. Opset 9 has no
    dilations.
    """
    node = f.node
    kept: dict[str, Any] = {n: attr for n, attr in node.attributes.items() if n not in ("ceil_mode", "dilations")}
    if any(dilation != 1 for dilation in f.attribute("dilations", [])):
        raise UnsupportedNodeError("it has dilations")
    if f.attribute("ceil_mode", 0):
        if f.attribute("count_include_pad", 0):
            raise UnsupportedNodeError("it has ceil_mode and counts the padding")
        kept["pads"] = _ceiled_pads(f)
    f.editor.replace(node, node.op_type, list(node.inputs), kept)


def _ceiled_pads(f: NodeBuilder) -> list[int]:
    kernel = f.attribute("kernel_shape")
    strides, pads = f.attribute("strides", [1] * len(kernel)), list(f.attribute("pads", [0] * 2 * len(kernel)))
    before, after = (dims(value) for value in (f.node.inputs[0], f.node.outputs[0]))
    for place, (size, stride) in enumerate(zip(kernel, strides, strict=True)):
        x, y = (None if sizes is None else sizes[place + 2] for sizes in (before, after))
        if not isinstance(x, int) or not isinstance(y, int):
            raise UnsupportedNodeError("it has ceil_mode, and its sizes are not static")
        end = place + len(kernel)
        pads[end] = max(pads[end], (y - 1) * stride + size - x - pads[place])
        if pads[end] >= size:
            raise UnsupportedNodeError("it has ceil_mode with a window that has no element")
    return pads


def resize(f: NodeBuilder) -> None:
    """Resize(x, scales) → Upsample(x, scales).

    Legal because Resize of opset 10 is Upsample for scales of at least 1.
    """
    scales = constant_array(f.node.inputs[1])
    if scales is None or (scales < 1).any():
        raise UnsupportedNodeError("its scales are not constants of at least 1")
    f.editor.replace(f.node, "Upsample", list(f.node.inputs))


# ---------------------------------------------------------------- elementwise


def is_inf(f: NodeBuilder) -> None:
    """IsInf(x) → Greater(Abs(x), largest finite number), Greater(x, …), or Less(x, …).

    Legal because only infinities are beyond the largest finite number, and comparisons with NaN are false.
    """
    node = f.node
    (x,) = node.inputs
    if x is None or x.dtype is None:
        return
    largest = float(np.finfo(x.dtype.numpy()).max)
    if f.attribute("detect_positive", 1):
        value = f.Abs(x) if f.attribute("detect_negative", 1) else x
        f.editor.replace(node, "Greater", [value, f.constant(largest, x.dtype)], {})
    elif f.attribute("detect_negative", 1):
        f.editor.replace(node, "Less", [x, f.constant(-largest, x.dtype)], {})
    else:
        raise UnsupportedNodeError("it detects no infinity")


def mod(f: NodeBuilder) -> None:
    """Mod(a, b) of integers → r = a - Div(a, b) * b, plus b where the signs of r and b differ; with fmod=1 → r.

    Legal because Div rounds towards zero, so that r has the sign of a, and Mod returns the sign of b.
    """
    node = f.node
    a, b = node.inputs
    if is_float(f.dtype):
        raise UnsupportedNodeError("opset 9 has no remainder of floats")
    product = f.Mul(f.Div(a, b), b)
    if f.attribute("fmod", 0):
        f.editor.replace(node, "Sub", [a, product], {})
        return
    rest = f.Sub(a, product)
    # ONNX Runtime's Sign of INT64 is wrong from 2³¹ to 2³² - 1.
    zero = f.constant(0)
    differ = f.And(f.Xor(f.Less(rest, zero), f.Less(b, zero)), f.Not(f.Equal(rest, zero)))
    f.editor.replace(node, "Where", [differ, f.Add(rest, b), rest], {})


def thresholded_relu(f: NodeBuilder) -> None:
    """ThresholdedRelu<alpha>(x) → Where(x > alpha, x, 0).

    Legal because this is the definition.
    """
    (x,) = f.node.inputs
    above = f.Greater(x, float(f.attribute("alpha", 1.0)))
    f.editor.replace(f.node, "Where", [above, x, f.constant(0.0)], {})


# ---------------------------------------------------------------- quantization


def dequantize_linear(f: NodeBuilder) -> None:
    """DequantizeLinear(x, s, z) → (x - z) * s.

    Legal because this is the definition.
    """
    x, scale, zero = (*f.node.inputs, None)[:3]
    floats = [f.Cast(value, to=int(DataType.FLOAT)) for value in (x, zero) if value is not None]
    f.editor.replace(f.node, "Mul", [floats[0] if zero is None else f.Sub(*floats), scale], {})


def quantize_linear(f: NodeBuilder) -> None:
    """QuantizeLinear(x, s, z) → Cast(Clip(Round(x / s) + z)), with the Round of halves to even in Floor.

    Legal because this is the definition.
    """
    node = f.node
    x, scale, zero = (*node.inputs, None)[:3]
    if x is None:
        return
    dtype = DataType.UINT8 if zero is None or zero.dtype is None else zero.dtype
    low, high = {DataType.UINT8: (0.0, 255.0), DataType.INT8: (-128.0, 127.0)}[dtype]
    rounded = round_half_to_even(f, f.Div(x, scale, sizes=dims(x)))
    if zero is not None:
        rounded = f.Add(rounded, f.Cast(zero, to=int(DataType.FLOAT)))
    f.editor.replace(node, "Cast", [f.Clip(rounded, min=low, max=high)], {"to": int(dtype)})


def mat_mul_integer(f: NodeBuilder) -> None:
    """MatMulInteger(a, b, a_zero, b_zero) → MatMul(a - a_zero, b - b_zero) of INT32.

    Legal because this is the definition. A zero point for each row is refused.
    """
    a, b, *zeros = (*f.node.inputs, None, None)[:4]
    operands = []
    for value, zero in zip((a, b), zeros, strict=True):
        wide = f.Cast(value, to=int(DataType.INT32))
        if zero is not None and rank_of(zero) > 0:
            raise UnsupportedNodeError("its zero point is not a scalar")
        operands.append(wide if zero is None else f.Sub(wide, f.Cast(zero, to=int(DataType.INT32))))
    f.editor.replace(f.node, "MatMul", operands, {})


STEP_9 = OpsetStep(
    9,
    rewrites={
        "AveragePool": pool,
        "DequantizeLinear": dequantize_linear,
        "IsInf": is_inf,
        "MatMulInteger": mat_mul_integer,
        "MaxPool": pool,
        "Mod": mod,
        "QuantizeLinear": quantize_linear,
        "Resize": resize,
        "Slice": slice_,
        "ThresholdedRelu": thresholded_relu,
        "TopK": top_k,
    },
)
