"""Resize for opset 10, whose Resize has no coordinate transformations."""

from __future__ import annotations

import numpy as np
from onnx_ir import DataType, Value

from fx_onnx.core.dtypes import is_float
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization import resize_64_bit
from fx_onnx.passes.legalization.opsets.forms import counted, rank_of, scalar_size
from fx_onnx.passes.legalization.opsets.step import UnsupportedNodeError
from fx_onnx.passes.matchers import constant_array, dims

__all__ = ["resize"]

_FLOAT, _INT64 = DataType.FLOAT, DataType.INT64
_HALF_PIXEL = ("half_pixel", "pytorch_half_pixel")


def resize(f: NodeBuilder) -> None:
    """Resize(x, , scales or sizes) → Resize(x, scales), or for each axis Gather, or a sum of two Gathers with weights.

    Legal because these are the formulas of Resize. Opset 10 has only nearest elements without a transformation of
    coordinates and constant scales. With static sizes the weights are a matrix.
    """
    node = f.node
    x, _, scales, sizes = (*node.inputs, None, None, None)[:4]
    if x is None:
        return
    factors = constant_array(scales)
    factors = factors if factors is not None and factors.size else None
    mode, transformation = f.attribute("mode", "nearest"), f.attribute("coordinate_transformation_mode", "half_pixel")
    is_plain = mode == "nearest" and transformation == "asymmetric" and f.attribute("nearest_mode") == "floor"
    if is_plain and factors is not None and all(float(factor).is_integer() for factor in factors):
        f.editor.replace(node, "Resize", [x, scales], {"mode": mode})
        return
    if mode != "nearest" and not is_float(f.dtype):
        raise UnsupportedNodeError("it interpolates integers")
    result = resize_64_bit.resize(f, x)
    if result is None and (mode == "cubic" or transformation not in (*_HALF_PIXEL, "asymmetric", "align_corners")):
        raise UnsupportedNodeError(f"its mode is {mode} with {transformation}, and its sizes are not static")
    if result is None:
        result = x
        for axis in range(rank_of(x)):
            if factors is None or factors[axis] != 1:
                result = _resized(f, x, result, axis, sizes, None if factors is None else float(factors[axis]))
    f.editor.replace(node, "Identity", [result], {})


def _resized(f: NodeBuilder, image: Value, x: Value, axis: int, sizes: Value | None, factor: float | None) -> Value:
    """Resizes one axis of x to an element of ``sizes``, or by a constant factor. ``image`` has the old size."""
    before, after = (dims(value) for value in (image, f.node.outputs[0]))
    if factor is None and before is not None and after is not None and before[axis] == after[axis]:
        return x
    size = scalar_size(f, image, axis)
    length = f.Cast(size, to=int(_FLOAT), sizes=())
    if factor is not None:
        scale = f.constant(factor, _FLOAT)
        new = f.Floor(f.Mul(length, scale, sizes=()), sizes=())
    elif sizes is not None:
        new = f.Cast(f.Squeeze(f.Gather(sizes, [axis], axis=0), axes=[0], sizes=()), to=int(_FLOAT), sizes=())
        scale = f.Div(new, length, sizes=())
    else:
        raise UnsupportedNodeError("its scales are computed at run time")
    number = f.Cast(counted(f, f.Cast(new, to=int(_INT64), sizes=())), to=int(_FLOAT))
    places = _places(f, number, length, new, scale)
    end = f.Sub(length, f.constant(1.0, _FLOAT), sizes=())
    if f.attribute("mode", "nearest") == "nearest":
        is_floor = f.attribute("nearest_mode", "round_prefer_floor") == "floor"
        if not is_floor and f.attribute("nearest_mode") != "round_prefer_ceil":
            raise UnsupportedNodeError("of two elements that are equally near, it takes the first one")
        places = f.Floor(places if is_floor else f.Add(places, f.constant(0.5, _FLOAT)))
        return _gather(f, x, _between(f, places, end), axis)
    places = _between(f, places, end)
    low = f.Floor(places)
    weight = f.Cast(f.Sub(places, low), to=int(f.dtype))
    first, second = _gather(f, x, low, axis), _gather(f, x, f.Min(f.Add(low, f.constant(1.0, _FLOAT)), end), axis)
    later = rank_of(image) - 1 - axis
    weight = f.Unsqueeze(weight, axes=list(range(1, later + 1))) if later else weight
    one = f.constant(np.ones((), f.dtype.numpy()))
    result: Value = f.Add(f.Mul(first, f.Sub(one, weight)), f.Mul(second, weight))
    return result


def _places(f: NodeBuilder, number: Value, length: Value, new: Value, scale: Value) -> Value:
    """Returns the positions in x of the elements of the result, in float32 as ONNX Runtime computes them."""
    transformation = f.attribute("coordinate_transformation_mode", "half_pixel")
    half, one = f.constant(0.5, _FLOAT), f.constant(1.0, _FLOAT)
    if transformation == "asymmetric":
        places = f.Div(number, scale)
    elif transformation == "align_corners":
        places = f.Div(f.Mul(number, f.Sub(length, one, sizes=())), f.Max(f.Sub(new, one, sizes=()), one, sizes=()))
    else:
        places = f.Sub(f.Div(f.Add(number, half), scale), half)
        if transformation == "pytorch_half_pixel":  # an axis of one element takes the first one
            places = f.Mul(places, f.Cast(f.Greater(new, one, sizes=()), to=int(_FLOAT), sizes=()))
    result: Value = places
    return result


def _between(f: NodeBuilder, places: Value, end: Value) -> Value:
    result: Value = f.Min(f.Max(places, f.constant(0.0, _FLOAT)), end)
    return result


def _gather(f: NodeBuilder, x: Value, places: Value, axis: int) -> Value:
    result: Value = f.Gather(x, f.Cast(places, to=int(_INT64)), axis=axis)
    return result
