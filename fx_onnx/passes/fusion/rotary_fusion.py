"""Fusion of rotary position embeddings that the model computes from elementary operators."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import (
    MAX_CONSTANT_BYTES,
    attribute,
    constant_array,
    constant_integers,
    constant_number,
    dims,
    producer_of,
)
from fx_onnx.passes.rules import Result, rule

__all__ = ["fuse_partial_rotary", "fuse_rotary_embedding", "fuse_split_rotary"]

_TYPES = (DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16)
_HALF = "fx_onnx.half"
# Operators whose result has equal halves along the last axis if their first input has, and if that axis keeps its size.
_KEEPS_HALVES = ("Cos", "Sin", "Cast", "Unsqueeze", "Squeeze", "Reshape", "Expand", "Identity")
# Those that compute the half of the result from the half of their first input.
_ELEMENTWISE = ("Cos", "Sin", "Cast", "Mul", "Div", "Unsqueeze", "Squeeze")


@rule("x * cos + Concat(-second, first, axis=axis) * sin", since=23)
def fuse_rotary_embedding(
    f: NodeBuilder, x: Value, cos: Value, sin: Value, first: Value, second: Value, axis: int
) -> Result:
    """x * cos + Concat(-x2, x1) * sin, x1 and x2 the halves of x → RotaryEmbedding(x, half of cos, half of sin).

    x is (batch, heads, length, size). Legal where the two halves of cos are equal, the two halves of sin are equal, and
    neither table depends on the head. The equality is proven from the numbers or from how a table is computed. No other
    node may read an intermediate result. All nodes that share a table share its half.
    """
    if _whole(f, first, second, axis) is not x:
        return None
    tables = [_Table(table, x, f) for table in (cos, sin)]
    if not all(table.is_usable() for table in tables):
        return "a table of cos or sin depends on the head or may have unequal halves"
    return f.RotaryEmbedding(x, *[table.half() for table in tables])


@rule("Concat(first * cos - second * sin, second * cos + first * sin, axis=axis)", since=23)
def fuse_split_rotary(f: NodeBuilder, cos: Value, sin: Value, first: Value, second: Value, axis: int) -> Result:
    """Concat(x1 * cos - x2 * sin, x2 * cos + x1 * sin), x1 and x2 the halves of x → RotaryEmbedding(x, cos, sin).

    x is (batch, heads, length, size). Legal where neither table depends on the head. gpt-oss computes its embedding in
    this form. No other node may read an intermediate result.
    """
    x = _whole(f, first, second, axis)
    if x is None:
        return "the products are not those of two halves with cos and sin"
    tables = [_Table(table, x, f, has_halves=False) for table in (cos, sin)]
    if not all(table.is_usable() for table in tables):
        return "a table of cos or sin depends on the head or has another size"
    return f.RotaryEmbedding(x, *[table.half() for table in tables])


@rule("Concat(RotaryEmbedding(first, *tables), second, axis=axis)", since=23)
def fuse_partial_rotary(
    f: NodeBuilder, nodes: Sequence[ir.Node], first: Value, tables: Sequence[Value], second: Value, axis: int
) -> Result:
    """Concat(RotaryEmbedding(x1), x2), x1 and x2 the parts of x → RotaryEmbedding(x, rotary_embedding_dim=size of x1).

    Legal because the operator copies the rest of each head. Phi and GPT-NeoX rotate only a part of each head. No other
    node may read the rotated part.
    """
    parts = _match_parts(first, second)
    if nodes[1].attributes:
        return "the RotaryEmbedding has attributes"
    if parts is None or len(dims(parts[0]) or ()) != 4 or axis not in (-1, 3):
        return "the operands are not the two parts of each head of one value"
    return f.RotaryEmbedding(parts[0], *tables, rotary_embedding_dim=parts[1])


def _whole(f: NodeBuilder, first: Value, second: Value, axis: int) -> Value | None:
    """Returns the value (batch, heads, length, size) of the main graph whose halves, along ``axis``, are the two."""
    parts = _match_parts(first, second)
    sizes = dims(parts[0]) if parts is not None else None
    if parts is None or sizes is None or len(sizes) != 4 or 2 * parts[1] != sizes[3] or axis not in (-1, 3):
        return None
    return parts[0] if f.node.graph is f.editor.model.graph else None


def _match_parts(first: Value | None, second: Value | None) -> tuple[Value, int] | None:
    """Matches two parts of one value along its last axis, and returns the value and the size of the first part."""
    split = producer_of(first, "Split")
    producers = [split] if split is not None else [producer_of(value, "Slice") for value in (first, second)]
    whole = producers[0].inputs[0] if producers[0] is not None else None
    sizes, part = dims(whole), dims(first)
    if whole is None or not sizes or not part or not isinstance(sizes[-1], int) or not isinstance(part[-1], int):
        return None
    if split is not None:
        both = list(split.outputs) == [first, second] and attribute(split, "axis", 0) % len(sizes) == len(sizes) - 1
        return (whole, part[-1]) if both else None
    if producers[1] is None or producers[1].inputs[0] is not whole:
        return None
    spans = [_span(producer, sizes[-1]) for producer in producers if producer is not None]
    return (whole, part[-1]) if spans == [(0, part[-1]), (part[-1], sizes[-1])] else None


def _span(node: ir.Node, size: int) -> tuple[int, int] | None:
    """Returns the start and end of a Slice of the last axis, which has this size; None for other axes and steps."""
    start, end, axes, steps = ([*map(constant_integers, node.inputs[1:]), None, None, None])[:4]
    rank = len(dims(node.inputs[0]) or ())
    if start is None or end is None or axes is None or len(axes) != 1 or axes[0] % rank != rank - 1:
        return None
    if steps not in (None, [1]):
        return None
    return min(start[0] + size * (start[0] < 0), size), min(end[0] + size * (end[0] < 0), size)


class _Table:
    """The table of cos or sin for the rotary embedding of x, and its first half as an input of RotaryEmbedding.

    With ``has_halves``, the table has a column for each element of a head, otherwise for each element of its half.
    """

    def __init__(self, value: Value, x: Value, f: NodeBuilder, *, has_halves: bool = True) -> None:
        self.value, self.node, self.editor, self.dtype, self.has_halves = value, f.node, f.editor, x.dtype, has_halves
        unknown: tuple[int | str | None, ...] = (None, None, None, None)
        self.batch, _, self.length, self.size = dims(x) or unknown
        self.sizes = dims(value) or ()

    def is_usable(self) -> bool:
        """Returns whether the table has equal halves, depends on batch and position only, and expands to the batch."""
        if not 2 <= len(self.sizes) <= 4:
            return False
        if self.dtype not in _TYPES or self.value.dtype != self.dtype:
            return False
        padded = (1,) * (4 - len(self.sizes)) + self.sizes
        columns = self.size if self.has_halves or not isinstance(self.size, int) else self.size // 2
        if padded[0] not in (1, self.batch) or padded[1] != 1 or padded[2:] != (self.length, columns):
            return False
        known = isinstance(self.batch, int) or padded[0] != 1 or self._input_with_batch() is not None
        return known and (not self.has_halves or _has_equal_halves(self.value))

    def half(self) -> Value:
        """Returns the first half, (batch, length, size / 2). It is inserted after the table, once for all consumers."""
        if not isinstance(self.size, int):
            raise ValueError("the table is not usable")
        key = f"{_HALF} {self.batch}"
        made: Value | None = self.value.meta.get(key)
        if made is None or made.graph is None:  # not made yet, or removed with its last consumer
            made = self.value.meta[key] = self._create_half(self.value, self.size // 2)
        return made

    def _create_half(self, value: Value, half: int) -> Value:
        shared = self.batch != 1 and (len(self.sizes) < 4 or self.sizes[0] == 1)
        array = constant_array(value)
        f = NodeBuilder(value.producer() or self.node, self.editor, self.dtype, after=value)
        if array is None:
            rank, heads = len(self.sizes), producer_of(value, "Unsqueeze")
            if rank == 4 and heads is not None and heads.inputs[0] is not None and _inserts_heads(heads):
                rank, value = 3, heads.inputs[0]
            result = _first_half(value, half, f) if self.has_halves else value
            if rank != 3:
                result = f.Squeeze(result, [1]) if rank == 4 else f.Unsqueeze(result, [0])
        else:
            array = array[..., :half].reshape(-1, array.shape[-2], half)
            if shared and isinstance(self.batch, int) and array.nbytes * self.batch <= MAX_CONSTANT_BYTES:
                return f.constant(array.repeat(self.batch, 0))
            result = f.constant(array)
        return f.Expand(result, self._batch_shape(f)) if shared else result

    def _batch_shape(self, f: NodeBuilder) -> Value:
        """Returns the shape (batch, 1, 1), to which an Expand broadcasts the half."""
        if isinstance(self.batch, int):
            return f.constant([self.batch, 1, 1])
        source = self._input_with_batch()
        axis = (dims(source) or ()).index(self.batch or 0)
        size = f.Shape(source, start=axis, end=axis + 1)
        return f.Concat(size, [1, 1], axis=0)

    def _input_with_batch(self) -> Value | None:
        inputs = self.editor.model.graph.inputs
        return next((value for value in inputs if self.batch in (dims(value) or ())), None)


def _inserts_heads(unsqueeze: ir.Node) -> bool:
    """Returns whether the result (batch, 1, length, size) has its axis of heads from this node."""
    return constant_integers(unsqueeze.inputs[1]) in ([1], [-3])


def _first_half(value: Value, half: int, f: NodeBuilder) -> Value:
    """Returns the first half of a table with equal halves: computed from half of the angles, or else a Slice."""
    joined = producer_of(value, "Concat")
    if joined is not None and joined.inputs[0] is not None:
        return joined.inputs[0]
    node = producer_of(value, *_ELEMENTWISE)
    if node is None or node.inputs[0] is None:
        return f.Slice(value, [0], [half], [-1])
    inputs = [_first_half(node.inputs[0], half, f), *node.inputs[1:]]
    return f.emit(node.op_type, inputs, node.attributes)[0]


def _has_equal_halves(value: Value | None) -> bool:
    """Returns whether the halves along the last axis are equal, by their numbers or by how the value is computed."""
    array = constant_array(value)
    if array is not None:
        half = array.shape[-1] // 2 if array.ndim else 0
        return half > 0 and bool((array[..., :half] == array[..., half:]).all())
    joined = producer_of(value, "Concat")
    sizes = dims(value)
    if joined is not None and sizes:
        is_last = attribute(joined, "axis") % len(sizes) == len(sizes) - 1
        return is_last and len(joined.inputs) == 2 and joined.inputs[0] is joined.inputs[1]
    product = producer_of(value, "Mul", "Div")
    if product is not None:
        return constant_number(product.inputs[1]) is not None and _has_equal_halves(product.inputs[0])
    node = producer_of(value, *_KEEPS_HALVES)
    before = dims(node.inputs[0]) if node is not None else None
    return node is not None and bool(before and sizes and before[-1] == sizes[-1]) and _has_equal_halves(node.inputs[0])
