"""Elimination of the keys that an attention mask hides from all queries."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.fusion.tensor_scatter import Positions, match_positions
from fx_onnx.passes.matchers import constant_array, dims, producer_of
from fx_onnx.passes.rules import Result, rule

__all__ = ["slice_hidden_keys"]


@rule(
    "Attention(query, key, value, mask, is_causal=0)",
    since=23,
    where={"mask": lambda mask: mask.dtype == ir.DataType.BOOL},
)
def slice_hidden_keys(f: NodeBuilder, node: ir.Node, query: Value, key: Value, value: Value, mask: Value) -> Result:
    """Attention(q, k, v, mask) → Attention(q, k[:n], v[:n], mask[:n]), where the mask hides all keys from n on.

    A cache of a fixed size has room for more keys than it holds. Legal where the mask is the conjunction of conditions
    one of which is Range(0, length, 1) <= positions, along the keys: it is false for all keys after the last position.
    ONNX Runtime's CPU kernel computes the scores of all keys, also those beyond ``nonpad_kv_seqlen``.
    """
    sizes = dims(key)
    if sizes is None or len(sizes) != 4 or not isinstance(sizes[2], int) or len(node.outputs) > 1:
        return None
    if dims(value) is None or (dims(mask) or (None,))[-1] != sizes[2]:
        return "the sizes of the values or of the mask are not known"
    positions = _last_visible(mask, sizes[2])
    if positions is None:
        return "the mask is not known to hide the keys after the last position"
    end = positions.length if positions.start is None else f.Add(positions.start, positions.length)
    end = f.Reshape(end, [1])
    places = (key, 2), (value, 2), (mask, len(dims(mask) or ()) - 1)
    inputs = [query, *(f.Slice(each, [0], end, [axis]) for each, axis in places)]
    return f.emit("Attention", inputs, node.attributes)[0]


def _last_visible(mask: Value | None, length: int) -> Positions | None:
    """Returns the positions to the last of which a mask (..., length) hides all keys; None if there are none."""
    node = producer_of(mask, "And", "Expand", "LessOrEqual", "GreaterOrEqual")
    if node is None:
        return None
    if node.op_type == "Expand":
        return _last_visible(node.inputs[0], length) if (dims(node.inputs[0]) or (1,))[-1] == length else None
    if node.op_type == "And":
        found = (_last_visible(each, length) for each in node.inputs if (dims(each) or (1,))[-1] == length)
        return next((each for each in found if each is not None), None)
    keys, bounds = node.inputs if node.op_type == "LessOrEqual" else reversed(node.inputs)
    aligned = producer_of(bounds, "Reshape", "Unsqueeze")
    if not _counts_keys(keys, length):
        return None
    return match_positions(bounds if aligned is None else aligned.inputs[0])


def _counts_keys(value: Value | None, length: int) -> bool:
    """Returns whether the value is 0, 1, ..., length - 1 along its last axis, and has no other axis."""
    sizes = dims(value)
    if sizes is None or sizes[-1:] != (length,) or any(size != 1 for size in sizes[:-1]):
        return False
    array = constant_array(value)
    if array is not None:
        return bool((array.reshape(-1) == np.arange(length)).all())
    aligned = producer_of(value, "Reshape", "Unsqueeze")  # a constant of more than 64 KiB is not folded
    found = match_positions(value if aligned is None else aligned.inputs[0])
    return found is not None and found.start is None
