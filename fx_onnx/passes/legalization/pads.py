"""Legalization of Pad."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import known_rank, rank_of, sizes_of, static_integers
from fx_onnx.passes.legalization.ranges_and_slices import name_sizes
from fx_onnx.passes.legalization.table import DEFAULT, legalizes
from fx_onnx.passes.matchers import constant_array, dims, is_read_by, producer_of
from fx_onnx.passes.rules import Result

__all__ = ["legalize_pads"]


@legalizes("Pad(x, pads, value | None)", targets=(DEFAULT,))
def legalize_pads(f: NodeBuilder, node: ir.Node, x: Value, pads: Value, value: Value | None) -> Result:
    """Pad(x, pads, value) before a pooling → Pad(x, pads, value, axes).

    Legal because ``axes`` lists all axes, which is the default. ONNX Runtime's graph optimizer merges a Pad of zeros
    into the MaxPool or AveragePool after it, but not a Pad that has ``axes``. For a MaxPool the merged form is wrong:
    its own padding is never the maximum, but a zero of the Pad is the maximum where all values are negative. An
    AveragePool may end up with more padding than its window, and then the model does not load.
    """
    if not is_read_by(node.outputs[0], "MaxPool", "AveragePool"):
        return None
    if x.shape is None:
        return "the shape of its input is unknown"
    return f.Pad(x, pads, value, list(range(len(x.shape))), **dict(node.attributes))


@legalizes("Pad(x, pads, value | None, axes)", until=17)
def pad_all_axes(f: NodeBuilder, node: ir.Node, x: Value, pads: Value, value: Value | None, axes: Value) -> Result:
    """Pad(x, pads, value, axes) → Pad(x, pads of all axes, value).

    Legal because an axis that is not listed gets no padding. Where a pooling reads the result, the Pad is computed with
    an additional first axis of size 1, because ONNX Runtime would merge the Pad into the pooling, with other results
    (see ``legalize_pads``).
    """
    rank = known_rank(f)
    places = [axis % rank for axis in static_integers(axes, "axes are") or []]
    amounts = static_integers(pads, "pads are") if places != list(range(rank)) else constant_array(pads)
    more = () if value is None else (value,)
    if amounts is None:
        return f.Pad(x, pads, *more, **dict(node.attributes))
    full = np.zeros((2, rank), np.int64)
    full[:, places] = np.reshape(amounts, (2, -1))
    before, after = full.tolist()
    if is_read_by(node.outputs[0], "MaxPool", "AveragePool"):
        padded = f.Pad(f.Unsqueeze(x, [0]), [0, *before, 0, *after], value, **dict(node.attributes))
        return f.Squeeze(padded, [0])
    return f.Pad(x, [*before, *after], *more, **dict(node.attributes))


@legalizes("Pad(x, pads, value | None)", until=10)
def pad_by_blocks(f: NodeBuilder, node: ir.Node, x: Value, pads: Value, value: Value | None) -> Result:
    """Pad(x, pads, value) → Pad<pads, value>(x), or Concat of x and Expand(value) for other types and dynamic pads.

    Legal because both mean the same. The attribute ``value`` is a float32.
    """
    amounts = _amounts(f, pads, 2 * known_rank(f))
    known = [each for each in amounts if isinstance(each, int)]
    mode = f.attribute("mode", "constant")
    fill = np.zeros((), f.dtype.numpy()) if value is None else constant_array(value)
    if len(known) == len(amounts) and (mode != "constant" or (fill is not None and f.dtype is DataType.FLOAT)):
        return f.Pad(x, known, mode=mode, value=0.0 if fill is None else float(fill.reshape(())))
    if mode != "constant":
        return "its pads are computed at run time"
    content = f.constant(fill) if fill is not None else value
    result, count = x, len(amounts) // 2
    for axis, (before, after) in enumerate(zip(amounts[:count], amounts[count:], strict=True)):
        result = _padded(f, _cut(f, result, axis, before, after), axis, before, after, content)
    return result


def _amounts(f: NodeBuilder, pads: Value, count: int) -> list[int | Value]:
    """Returns the elements of the pads: numbers where they are known, else scalars."""
    maker = producer_of(pads, "Concat")
    parts = [pads] if maker is None else list(maker.inputs)
    arrays = [constant_array(part) for part in parts]
    if all(array is not None or dims(part) == (1,) for array, part in zip(arrays, parts, strict=True)):
        found: list[int | Value] = []
        for array, part in zip(arrays, parts, strict=True):
            found += [f.Squeeze(part, [0])] if array is None else [int(each) for each in array]
        return found
    return [f.Gather(pads, f.constant(place, DataType.INT64), axis=0) for place in range(count)]


def _cut(f: NodeBuilder, x: Value, axis: int, before: int | Value, after: int | Value) -> Value:
    """Returns x without the elements that negative pads remove from one axis."""
    if all(isinstance(each, int) and each >= 0 for each in (before, after)):
        return x
    cuts = [f.constant(each, DataType.INT64) if isinstance(each, int) else each for each in (before, after)]
    first, last = (f.Where(f.Less(each, 0), each, 0) for each in cuts)
    result = f.Slice(x, f.Unsqueeze(f.Neg(first), [0]), f.Add(_size_now(f, x, axis), last), [axis])
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
            count = f.Unsqueeze(f.Where(f.Greater(amount, 0), amount, 0), [0])
        sizes = [count if each == axis else _size_now(f, x, each) for each in range(rank)] if count is not None else []
        blocks.append(f.Expand(value, f.Concat(*sizes, axis=0)) if sizes else None)
    parts = [each for each in (blocks[0], x, blocks[1]) if each is not None]
    if len(parts) < 2:
        return x
    result = f.Concat(*parts, axis=axis)
    result.shape = ir.Shape([None if each == axis else size for each, size in enumerate(sizes_of(x))])
    return result


def _size_now(f: NodeBuilder, x: Value, axis: int) -> Value:
    return f.Gather(f.Shape(x), [axis], axis=0)
