"""What Attention does by itself: sharing key heads, parting rows into heads and joining them again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, NamedTuple

import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.cleanup.transposes import permutation_of
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import (
    attribute,
    constant_array,
    constant_integers,
    dims,
    producer_of,
    single_use,
    single_use_producer,
)
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FoldHeadReshapes", "FoldRepeatedHeads"]

_SWAP = [0, 2, 1, 3]


class FoldRepeatedHeads(Rewrite):
    """Attention whose keys and values are repeated for each of several query heads → Attention of what is repeated.

    Legal where both are Reshape(Expand(Unsqueeze(x))) that repeats each head of x (batch, heads, length, size) in
    place: Attention lets query heads share key heads in that order.
    """

    name = "fold_repeated_heads"
    op_types = ("Attention",)
    since = 23

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Takes the repetition away from one Attention."""
        query, *repeated = node.inputs[:3]
        if _has_cache(node):
            return False
        key, value = map(_unrepeated, repeated)
        if key is None or value is None or len(dims(query) or ()) != 4 or key.shape[1] != value.shape[1]:
            return False
        editor.replace(node, "Attention", [query, key, value, *node.inputs[3:]])
        return True


def _has_cache(node: ir.Node) -> bool:
    """Whether an Attention is given or gives more than queries, keys, values and mask make."""
    return len(node.outputs) > 1 or any(value is not None for value in node.inputs[4:])


def _unrepeated(value: ir.Value | None) -> Any:
    """x of Reshape(Expand(Unsqueeze(x))), where that repeats each entry of the second axis in place."""
    joined = producer_of(value, "Reshape")
    expanded = producer_of(joined.inputs[0], "Expand") if joined is not None else None
    parted = producer_of(expanded.inputs[0], "Unsqueeze", "Reshape") if expanded is not None else None
    if parted is None or expanded is None:
        return None
    before, single, repeated, after = map(dims, (parted.inputs[0], *parted.outputs, *expanded.outputs, value))
    if before is None or repeated is None or len(before) != 4 or len(repeated) != 5:
        return None
    batch, heads, *rest = before
    copies = repeated[2]
    if not isinstance(heads, int) or not isinstance(copies, int) or single != (batch, heads, 1, *rest):
        return None
    fits = repeated == (batch, heads, copies, *rest) and after == (batch, heads * copies, *rest)
    return parted.inputs[0] if fits else None


class FoldHeadReshapes(Rewrite):
    """Reshape(Transpose(Attention(q, k, v))) → Attention of rows, (batch, length, heads * size), in and out.

    Legal where q, k and v are rows that a Reshape and a Transpose part into heads, or parts of one row that holds all
    three, and no other node reads the result before it is rows again. A RotaryEmbedding on the way takes rows as well.
    """

    name = "fold_head_reshapes"
    op_types = ("Attention",)
    since = 23

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one Attention, with what is before and after it."""
        join, sizes = _joined_again(node), dims(node.outputs[0])
        query, key, value = map(_rows, node.inputs[:3])
        if join is None or sizes is None or query is None or key is None or value is None:
            return False
        batch, heads, length, size = sizes
        if not isinstance(heads, int) or not isinstance(size, int) or (query.heads, key.heads) != (heads, value.heads):
            return False
        whole = (batch, length, heads * size)
        fits = dims(join.outputs[0]) == whole
        if not fits and 0 in (constant_integers(join.inputs[1]) or [0])[2:]:  # where 0 stands for a size of the heads
            return False
        inputs = [*(each.write(editor, node) for each in (query, key, value)), *node.inputs[3:4]]
        attributes = {**node.attributes, "q_num_heads": heads, "kv_num_heads": key.heads}
        swap = join.inputs[0].producer() if join.inputs[0] is not None else None
        absorbed = [each for each in (node, swap) if each is not None]
        if fits:
            editor.replace(join, "Attention", inputs, attributes, absorbed)
            return True
        f = NodeBuilder(join, editor, node.outputs[0].dtype)
        made = f.emit("Attention", inputs, attributes, sizes=whole)[0]
        editor.replace(join, "Reshape", [made, join.inputs[1]])
        return True


def _joined_again(node: ir.Node) -> ir.Node | None:
    """The Reshape that alone reads the Transpose that alone reads the result (batch, heads, length, size)."""
    if _has_cache(node):
        return None
    swap = _reader(node.outputs[0], "Transpose")
    join = _reader(swap.outputs[0], "Reshape") if swap is not None and permutation_of(swap) == _SWAP else None
    return join if join is not None and swap is not None and join.inputs[0] is swap.outputs[0] else None


def _reader(value: ir.Value, op_type: str) -> ir.Node | None:
    """The node of this operator that alone reads the value."""
    reader = next(iter(value.uses())).node if single_use(value) else None
    return reader if reader is not None and reader.op_type == op_type and not reader.domain else None


class _Rows(NamedTuple):
    """What stands for a value (batch, heads, length, size) as rows (batch, length, heads * size)."""

    heads: int
    write: Callable[[Editor, ir.Node], ir.Value]


def _rows(value: ir.Value | None) -> _Rows | None:
    """The rows that a value (batch, heads, length, size) was parted from; None if it was not."""
    rotary = single_use_producer(value, "RotaryEmbedding")
    if rotary is not None:
        before = _rows(rotary.inputs[0])
        return None if before is None else _Rows(before.heads, partial(_rotary, rotary, before))
    gather = producer_of(value, "Gather")
    swap = producer_of(gather.inputs[0] if gather is not None else value, "Transpose")
    part = producer_of(swap.inputs[0], "Reshape") if swap is not None else None
    if swap is None or part is None or part.inputs[0] is None:
        return None
    source, whole, parted = part.inputs[0], dims(part.inputs[0]), dims(part.outputs[0])
    sizes = [size for size in (parted or ())[2:] if isinstance(size, int)]
    if whole is None or parted is None or len(parted) != 2 + len(sizes) or whole != (*parted[:2], prod(sizes)):
        return None
    if gather is None:
        return _Rows(sizes[0], partial(_itself, source)) if permutation_of(swap) == _SWAP else None
    index = constant_array(gather.inputs[1])
    if permutation_of(swap) != [2, 0, 3, 1, 4] or index is None or index.shape or attribute(gather, "axis", 0) != 0:
        return None
    return _Rows(sizes[1], partial(_piece, source, sizes[0], int(index) % sizes[0]))


def _itself(source: ir.Value, editor: Editor, node: ir.Node) -> ir.Value:
    return source


def _piece(source: ir.Value, count: int, index: int, editor: Editor, node: ir.Node) -> ir.Value:
    """One of equal pieces of the rows; the Splits that this makes of one value are one node in the end."""
    attributes = {"axis": -1, "num_outputs": count}
    return NodeBuilder(node, editor, source.dtype).emit("Split", [source], attributes, outputs=count)[index]


def _rotary(rotary: ir.Node, before: _Rows, editor: Editor, node: ir.Node) -> ir.Value:
    """The RotaryEmbedding of the rows."""
    inputs = [before.write(editor, node), *rotary.inputs[1:]]
    attributes = {**rotary.attributes, "num_heads": before.heads}
    return NodeBuilder(rotary, editor, rotary.outputs[0].dtype).emit("RotaryEmbedding", inputs, attributes)[0]
