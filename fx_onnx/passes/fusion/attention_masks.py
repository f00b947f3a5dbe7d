"""Formulas of the elements of computed masks: which indices an attention mask is true for.

A mask such as "key ≤ query + past, and the key is no padding" is computed from ranges of indices, comparisons and reads
of an input. This file derives that formula from the nodes, for all sizes, so that a pass can prove what a mask means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.fusion.attention_fusion import Positions, match_positions
from fx_onnx.passes.matchers import attribute, constant_array, constant_integers, constant_number, dims, producer_of
from fx_onnx.passes.rules import Result, rule

__all__ = ["Element", "Formula", "Linear", "Read", "index_formula", "slice_hidden_keys"]

_INTEGERS = (DataType.INT64, DataType.INT32, DataType.BOOL)
_FLOATS = (DataType.FLOAT, DataType.FLOAT16)


@dataclass(frozen=True)
class Linear:
    """A sum of a constant and of terms, each an axis or a size with its coefficient.

    Attributes:
        constant: the constant.
        terms: (term, coefficient). A negative number is the index along this axis, counted from the end; a text is the
            size with this name.
    """

    constant: int = 0
    terms: frozenset[tuple[int | str, int]] = frozenset()

    @classmethod
    def of(cls, term: int | str) -> Linear:
        """Returns the index along a negative axis, or the size of a name."""
        return cls(0, frozenset([(term, 1)]))

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """Returns self + factor * other."""
        coefficients = dict(self.terms)
        for term, coefficient in other.terms:
            coefficients[term] = coefficients.get(term, 0) + factor * coefficient
        terms = frozenset((term, coefficient) for term, coefficient in coefficients.items() if coefficient)
        return Linear(self.constant + factor * other.constant, terms)

    def moved(self, places: Mapping[int, Linear]) -> Linear:
        """Returns the sum with each axis replaced as in ``places``, which has all of them."""
        result = Linear(self.constant)
        for term, coefficient in self.terms:
            result = result.plus(places[term] if isinstance(term, int) else Linear.of(term), coefficient)
        return result


@dataclass(frozen=True)
class Read:
    """The element of a value, which is no formula itself, at some index."""

    value: ir.Value
    index: tuple[Linear, ...]

    def moved(self, places: Mapping[int, Linear]) -> Read:
        """Returns the read with each axis replaced."""
        return replace(self, index=tuple(linear.moved(places) for linear in self.index))


Element = Linear | Read | frozenset[Linear | Read]
"""An integer, an element of an input, or conditions that must all hold: a sum is at least 0, a read is not 0."""


@dataclass(frozen=True)
class Formula:
    """The sizes of a value, and its element as a formula of the index."""

    sizes: tuple[Linear, ...]
    element: Element


def index_formula(value: ir.Value | None) -> Formula | None:
    """Returns the formula of a value's elements; None if a node is none of those that compute masks.

    A float mask counts as the conditions under which it is 0, if it hides the key otherwise.
    """
    return _Formulas().find(value)


class _Formulas:
    """Derives formulas, each once."""

    def __init__(self) -> None:
        self._found: dict[ir.Value, Formula | None] = {}
        self._rules: dict[str, Callable[[ir.Node], Formula | None]] = {
            "Range": self._range,
            "Shape": self._shape,
            "Squeeze": self._squeeze,
            "Unsqueeze": self._unsqueeze,
            "Reshape": self._reshape,
            "Expand": self._expand,
            "Add": lambda node: self._sum(node, 1),
            "Sub": lambda node: self._sum(node, -1),
            "LessOrEqual": lambda node: self._compare(node, swapped=True, strict=False),
            "Less": lambda node: self._compare(node, swapped=True, strict=True),
            "GreaterOrEqual": lambda node: self._compare(node, swapped=False, strict=False),
            "Greater": lambda node: self._compare(node, swapped=False, strict=True),
            "And": self._and,
            "Cast": self._cast,
            "GatherND": self._gather,
            "Where": self._where,
        }

    def find(self, value: ir.Value | None) -> Formula | None:
        """Returns the formula of a value."""
        if value is None:
            return None
        if value not in self._found:
            self._found[value] = None
            self._found[value] = self._derive(value)
        return self._found[value]

    def _derive(self, value: ir.Value) -> Formula | None:
        node = value.producer()
        if node is not None and not node.domain and node.op_type in self._rules:
            return self._rules[node.op_type](node)
        array, sizes = constant_array(value), dims(value)
        if array is not None and array.dtype.kind in "iu" and array.size == 1:
            return Formula((Linear(1),) * array.ndim, Linear(int(array.reshape(()))))
        if node is None and value.is_graph_input() and sizes is not None and value.dtype in _INTEGERS:
            axes = range(-len(sizes), 0)
            return Formula(tuple(map(_size, sizes)), Read(value, tuple(map(Linear.of, axes))))
        return None

    # ---------------------------------------------------------------- sizes

    def _vector(self, value: ir.Value | None) -> tuple[Linear, ...] | None:
        """Returns the elements of a vector of sizes."""
        numbers = constant_integers(value)
        if numbers is not None:
            return tuple(map(Linear, numbers))
        joined = producer_of(value, "Concat")
        if joined is not None:
            parts = [self._vector(part) for part in joined.inputs]
            return None if None in parts else tuple(size for part in parts if part is not None for size in part)
        data = self.find(value)
        is_number = data is not None and data.sizes == (Linear(1),) and isinstance(data.element, Linear)
        return (data.element,) if data is not None and is_number else None  # type: ignore[return-value]

    def _shape(self, node: ir.Node) -> Formula | None:
        sizes = dims(node.inputs[0])
        selected = None if sizes is None else sizes[attribute(node, "start", 0) : attribute(node, "end", len(sizes))]
        return None if selected is None or len(selected) != 1 else Formula((Linear(1),), _size(selected[0]))

    def _range(self, node: ir.Node) -> Formula | None:
        start, limit = (self._number(bound) for bound in node.inputs[:2])
        if start is None or limit is None or constant_number(node.inputs[2]) != 1:
            return None
        size = limit.plus(start, -1)
        return Formula((size,), start if size == Linear(1) else start.plus(Linear.of(-1)))

    def _number(self, value: ir.Value | None) -> Linear | None:
        data = self.find(value)
        return data.element if data is not None and isinstance(data.element, Linear) and not data.sizes else None

    # ---------------------------------------------------------------- movement of axes

    def _squeeze(self, node: ir.Node) -> Formula | None:
        data, axes = self.find(node.inputs[0]), constant_integers(node.inputs[1]) if len(node.inputs) > 1 else None
        if data is None or axes is None:
            return None
        removed = {axis % len(data.sizes) for axis in axes}
        kept = [axis for axis in range(len(data.sizes)) if axis not in removed]
        if any(data.sizes[axis] != Linear(1) for axis in removed):
            return None
        return _rearranged(data, kept, len(kept), list(range(len(kept))))

    def _unsqueeze(self, node: ir.Node) -> Formula | None:
        data, axes = self.find(node.inputs[0]), constant_integers(node.inputs[1])
        if data is None or axes is None:
            return None
        rank = len(data.sizes) + len(axes)
        added = {axis % rank for axis in axes}
        return _rearranged(data, range(len(data.sizes)), rank, [axis for axis in range(rank) if axis not in added])

    def _reshape(self, node: ir.Node) -> Formula | None:
        """Derives a Reshape that moves the one axis of a value that is longer than 1, or has none."""
        data, target = self.find(node.inputs[0]), constant_integers(node.inputs[1])
        if data is None or target is None or any(size not in (1, -1) for size in target):
            return None
        long = [axis for axis, size in enumerate(data.sizes) if size != Linear(1)]
        places = [axis for axis, size in enumerate(target) if size == -1]
        if len(long) != len(places):
            return None if long else replace(data, sizes=(Linear(1),) * len(target))
        return _rearranged(data, long, len(target), places)

    def _expand(self, node: ir.Node) -> Formula | None:
        data, target = self.find(node.inputs[0]), self._vector(node.inputs[1])
        sizes = None if data is None or target is None else _broadcast(data.sizes, target)
        return None if data is None or sizes is None else replace(data, sizes=sizes)

    def _gather(self, node: ir.Node) -> Formula | None:
        """Derives GatherND of a value at a grid of indices, which are joined along the last axis."""
        data, joined = self.find(node.inputs[0]), producer_of(node.inputs[1], "Concat")
        if data is None or joined is None or attribute(node, "batch_dims", 0):
            return None
        if attribute(joined, "axis") != -1 or len(joined.inputs) != len(data.sizes):
            return None
        sizes: tuple[Linear, ...] | None = ()
        places: dict[int, Linear] = {}
        for axis, column in enumerate(map(self.find, joined.inputs), -len(data.sizes)):
            if column is None or sizes is None or column.sizes[-1:] != (Linear(1),):
                return None
            sizes = _broadcast(sizes, column.sizes[:-1])
            places[axis] = index = _without_last(column.element)
            # An index from a range that starts at 0 is never negative, which would count from the end.
            if len(index.terms) != 1 or index.constant or any(not isinstance(t, int) or c != 1 for t, c in index.terms):
                return None
        return None if sizes is None else Formula(sizes, _moved(data.element, places))

    # ---------------------------------------------------------------- numbers and conditions

    def _both(self, node: ir.Node) -> tuple[tuple[Linear, ...], Element, Element] | None:
        first, second = map(self.find, node.inputs[:2])
        sizes = None if first is None or second is None else _broadcast(first.sizes, second.sizes)
        return None if first is None or second is None or sizes is None else (sizes, first.element, second.element)

    def _sum(self, node: ir.Node, factor: int) -> Formula | None:
        operands = self._both(node)
        if operands is None or not isinstance(operands[1], Linear) or not isinstance(operands[2], Linear):
            return None
        return Formula(operands[0], operands[1].plus(operands[2], factor))

    def _compare(self, node: ir.Node, *, swapped: bool, strict: bool) -> Formula | None:
        difference = self._sum(node, -1)
        if difference is None or not isinstance(difference.element, Linear):
            return None
        larger = Linear().plus(difference.element, -1) if swapped else difference.element
        return replace(difference, element=frozenset([larger.plus(Linear(int(strict)), -1)]))

    def _and(self, node: ir.Node) -> Formula | None:
        operands = self._both(node)
        if operands is None or not isinstance(operands[1], frozenset) or not isinstance(operands[2], frozenset):
            return None
        return Formula(operands[0], operands[1] | operands[2])

    def _cast(self, node: ir.Node) -> Formula | None:
        data, dtype = self.find(node.inputs[0]), attribute(node, "to")
        if data is None or isinstance(data.element, frozenset):
            return data if dtype == DataType.BOOL else None
        if dtype == DataType.BOOL:
            return replace(data, element=frozenset([data.element])) if isinstance(data.element, Read) else None
        return data if dtype == DataType.INT64 else None

    def _where(self, node: ir.Node) -> Formula | None:
        """Derives Where(conditions, 0, x), where x is minus infinity or one of the two lowest numbers of the dtype."""
        data, dtype = self.find(node.inputs[0]), node.outputs[0].dtype
        shown, hidden = (constant_number(operand) for operand in node.inputs[1:])
        if data is None or dtype not in _FLOATS or shown != 0 or hidden is None:
            return None
        lowest = np.finfo(dtype.numpy()).min
        hides = hidden <= np.nextafter(lowest, np.zeros_like(lowest))  # legalize_lowest_masks replaces the lowest
        fits = all(len(dims(operand) or ()) <= len(data.sizes) for operand in node.inputs[1:])
        return data if hides and fits and isinstance(data.element, frozenset) else None


def _size(size: int | str) -> Linear:
    return Linear(size) if isinstance(size, int) else Linear.of(size)


def _moved(element: Element, places: Mapping[int, Linear]) -> Element:
    if isinstance(element, frozenset):
        return frozenset(condition.moved(places) for condition in element)
    return element.moved(places)


def _rearranged(formula: Formula, axes: Sequence[int], rank: int, places: Sequence[int]) -> Formula:
    """Returns a formula of another rank whose axes ``places`` are the given axes; all other axes have size 1."""
    sizes = [Linear(1)] * rank
    moved = {axis: Linear() for axis in range(-len(formula.sizes), 0)}
    for axis, new_axis in zip(axes, places, strict=True):
        sizes[new_axis] = formula.sizes[axis]
        moved[axis - len(formula.sizes)] = Linear.of(new_axis - rank)
    return Formula(tuple(sizes), _moved(formula.element, moved))


def _without_last(element: Element) -> Linear:
    """Returns an index of a grid, whose last axis has size 1, without this axis. Another element has no such index."""
    if not isinstance(element, Linear):
        return Linear(-1)
    axes = [term for term, _ in element.terms if isinstance(term, int)]
    return element.moved({axis: Linear.of(axis + 1) if axis < -1 else Linear() for axis in axes})


def _broadcast(first: tuple[Linear, ...], second: tuple[Linear, ...]) -> tuple[Linear, ...] | None:
    """Returns the sizes to which two shapes broadcast; None where two sizes are not known to be equal."""
    rank = max(len(first), len(second))
    one = Linear(1)
    pairs = zip(*((one,) * (rank - len(shape)) + shape for shape in (first, second)), strict=True)
    sizes = [b if a == one else a for a, b in pairs if one in (a, b) or a == b]
    return tuple(sizes) if len(sizes) == rank else None


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
    inputs = [query, *(f.Slice(operand, [0], end, [axis]) for operand, axis in places)]
    return f.emit("Attention", inputs, node.attributes)[0]


def _last_visible(mask: Value | None, length: int) -> Positions | None:
    """Returns the positions to the last of which a mask (..., length) hides all keys; None if there are none."""
    node = producer_of(mask, "And", "Expand", "LessOrEqual", "GreaterOrEqual")
    if node is None:
        return None
    if node.op_type == "Expand":
        return _last_visible(node.inputs[0], length) if (dims(node.inputs[0]) or (1,))[-1] == length else None
    if node.op_type == "And":
        candidates = (_last_visible(part, length) for part in node.inputs if (dims(part) or (1,))[-1] == length)
        return next((positions for positions in candidates if positions is not None), None)
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
    positions = match_positions(value if aligned is None else aligned.inputs[0])
    return positions is not None and positions.start is None
