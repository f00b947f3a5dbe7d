"""Pad of opset 11 in opset 10, whose pads are an attribute; and names for the sizes that a Slice computes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.opsets.forms import (
    give_rank,
    rank_of,
    sizes_of,
)
from fx_onnx.passes.legalization.opsets.step import UnsupportedNodeError
from fx_onnx.passes.matchers import constant_array, dims, producer_of

__all__ = ["name_sizes", "pad"]


def name_sizes(f: NodeBuilder, x: Value, result: Value, axes: list[int] | None) -> None:
    """Gives unknown sizes of a Slice's result names that no other size has.

    ONNX's shape inference for Slice of opset 10 gives a sliced axis the name of the whole axis. ONNX Runtime then
    assumes that the two are equal, and fails when it reuses the memory of one for the other.
    """
    if x.shape is None:
        return
    sizes = sizes_of(x if result.shape is None else result)
    sliced = range(len(sizes)) if axes is None else axes
    if result.shape is None:
        sizes = tuple(None if axis in sliced else size for axis, size in enumerate(sizes))
    name = f.editor.unique_name(f"{result.name or f.node.name}_size")
    result.shape = ir.Shape([f"{name}_{axis}" if size is None else size for axis, size in enumerate(sizes)])


def pad(f: NodeBuilder) -> None:
    """Pad(x, pads, value) → Pad<pads, value>(x), or Concat of x and Expand(value) for other types and dynamic pads.

    Legal because both mean the same. The attribute ``value`` is a float32.
    """
    node = f.node
    x, _, value = (*node.inputs, None)[:3]
    if x is None:
        return
    give_rank(f)
    pads = _amounts(f, 2 * rank_of(x))
    known = [each for each in pads if isinstance(each, int)]
    mode = f.attribute("mode", "constant")
    fill = np.zeros((), f.dtype.numpy()) if value is None else constant_array(value)
    if len(known) == len(pads) and (mode != "constant" or (fill is not None and f.dtype is DataType.FLOAT)):
        number = 0.0 if fill is None else float(fill.reshape(()))
        f.editor.replace(node, "Pad", [x], {"mode": mode, "pads": known, "value": number})
        return
    if mode != "constant":
        raise UnsupportedNodeError("its pads are computed at run time")
    value = f.constant(fill) if fill is not None else value
    result = x
    for axis, (before, after) in enumerate(zip(pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True)):
        result = _padded(f, _cut(f, result, axis, before, after), axis, before, after, value)
    f.editor.replace(node, "Identity", [result], {})


def _amounts(f: NodeBuilder, count: int) -> list[int | Value]:
    """Returns the elements of the pads: numbers where they are known, else scalars."""
    pads = f.node.inputs[1]
    maker = producer_of(pads, "Concat")
    parts = [pads] if maker is None else list(maker.inputs)
    arrays = [constant_array(part) for part in parts]
    if all(array is not None or dims(part) == (1,) for array, part in zip(arrays, parts, strict=True)):
        found: list[int | Value] = []
        for array, part in zip(arrays, parts, strict=True):
            found += [f.Squeeze(part, axes=[0], sizes=())] if array is None else [int(each) for each in array]
        return found
    return [f.Gather(pads, f.constant(place, DataType.INT64), axis=0, sizes=()) for place in range(count)]


def _cut(f: NodeBuilder, x: Value, axis: int, before: int | Value, after: int | Value) -> Value:
    """Returns x without the elements that negative pads remove from one axis."""
    if all(isinstance(each, int) and each >= 0 for each in (before, after)):
        return x
    zero = f.constant(0, DataType.INT64)
    size = _size_now(f, x, axis)
    cuts = [f.constant(each, DataType.INT64) if isinstance(each, int) else each for each in (before, after)]
    first, last = (f.Where(f.Less(each, zero, sizes=()), each, zero, sizes=()) for each in cuts)
    start = f.Unsqueeze(f.Neg(first, sizes=()), axes=[0], sizes=(1,))
    result: Value = f.Slice(x, start, f.Add(size, last, sizes=(1,)), [axis])
    name_sizes(f, x, result, [axis])
    return result


def _padded(f: NodeBuilder, x: Value, axis: int, before: int | Value, after: int | Value, value: Value | None) -> Value:
    """Returns x with ``value`` before and after it along one axis."""
    rank = rank_of(x)
    blocks: list[Value | None] = []
    for amount in (before, after):
        if isinstance(amount, int):
            count = f.constant([amount]) if amount > 0 else None
        else:
            zero = f.constant(0, DataType.INT64)
            positive = f.Where(f.Greater(amount, zero, sizes=()), amount, zero, sizes=())
            count = f.Unsqueeze(positive, axes=[0], sizes=(1,))
        sizes = [count if each == axis else _size_now(f, x, each) for each in range(rank)] if count is not None else []
        blocks.append(f.Expand(value, f.Concat(*sizes, axis=0, sizes=(rank,))) if sizes else None)
    parts = [each for each in (blocks[0], x, blocks[1]) if each is not None]
    if len(parts) < 2:
        return x
    result: Value = f.Concat(*parts, axis=axis)
    result.shape = ir.Shape([None if each == axis else size for each, size in enumerate(sizes_of(x))])
    return result


def _size_now(f: NodeBuilder, x: Value, axis: int) -> Value:
    result: Value = f.Gather(f.Shape(x), [axis], axis=0, sizes=(1,))
    return result
