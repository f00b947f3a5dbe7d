"""Finds the dims that were requested separately, but that the captured program relates to each other.

torch.export gives every requested dim a symbol. Where the model needs two dims to be equal, or one dim to be an
expression of others, torch replaces the symbol. The relation may be a coincidence of the example, so every relation
that the user did not request is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import sympy

from fx_onnx.capture.dynamic_dims import CapturedInput, guard_place
from fx_onnx.capture.proof.size_condition import RAISES
from fx_onnx.capture.proof.size_proof import SizeProof
from fx_onnx.requests.dim_expressions import AxisText, dim_expression
from fx_onnx.sizes.dim_table import DimSummary, SizeCondition
from fx_onnx.sizes.size_text import expression_text
from fx_onnx.sizes.trial_sizes import condition_of
from fx_onnx.torch_internals.guard_private import is_from_file

__all__ = ["DimRelation", "describe_relation", "dim_relations"]

_LISTED = 4  # a cache with many layers has hundreds of equal dims


@dataclass(frozen=True)
class _Axis:
    """An axis of an input that was requested as dynamic.

    Attributes:
        number: the index of the input among the tensors.
        axis: the axis.
        text: the axis as ``x.shape[0]``.
        name: the user's name for the dim, if it has one.
    """

    number: int
    axis: int
    text: str
    name: str | None

    @property
    def label(self) -> str:
        """The user's name, or the text of the axis."""
        return self.text if self.name is None else str(self.name)


@dataclass(frozen=True)
class DimRelation:
    """A relation between dims that the user requested separately.

    Attributes:
        dim: the size that the program gives the axes.
        axes: the axes.
        are_equal: whether the model makes the axes equal to each other, or else the first one to ``dim``.
        symbols: the labels of the symbols in ``dim``.
        line: the line of code that relates them, as ``(file:line: code)``; empty if none is known.
        is_bound: whether the model raises an exception for other sizes.
    """

    dim: Any
    axes: Sequence[_Axis]
    are_equal: bool
    symbols: Mapping[sympy.Symbol, str]
    line: str
    is_bound: bool

    def __str__(self) -> str:
        shown = list(dict.fromkeys(axis.text if axis.name is None else repr(str(axis.name)) for axis in self.axes))
        line = f" {self.line}" if self.line else ""
        if not self.are_equal:
            return f"The model makes the dim {shown[0]} equal to {self._definition}{line}."
        name = next((axis.name for axis in self.axes if axis.name is not None), None)
        called = f"; {'both' if len(shown) == 2 else 'all'} are called {str(name)!r}" if name else ""
        return f"The model makes the dims {_listed(shown)} equal{called}{line}."

    @property
    def labels(self) -> list[str]:
        """The labels of the axes, each once."""
        return list(dict.fromkeys(axis.label for axis in self.axes))

    @property
    def condition(self) -> SizeCondition:
        """The relation as a condition over the labels of the dims."""
        labels, text, cause, holds = self.labels, " == ".join(self.labels), "makes the dims equal", _are_equal
        if not self.are_equal:
            own = sympy.Dummy(integer=True)
            labels = [labels[0], *self.symbols.values()]
            text, cause = f"{labels[0]} == {self._definition}", "computes one dim from the others"
            holds = condition_of(sympy.Eq(own, self.dim), (own, *self.symbols))
        if self.is_bound:
            return SizeCondition(text, "bound", tuple(labels), RAISES, self.line, _holds=holds)
        return SizeCondition(text, "finding", tuple(labels), cause, self.line, _holds=holds)

    @property
    def sizes(self) -> str:
        """The sizes of the first axis, in words."""
        return f"equal to {_listed(self.labels[1:]) if self.are_equal else self._definition}"

    @property
    def others(self) -> Iterator[DimSummary]:
        """The other dims that have a name of the user's."""
        first = self.axes[0]
        for name in dict.fromkeys(axis.name for axis in self.axes if axis.name not in (None, first.name)):
            if self.are_equal:
                places = tuple(axis.text for axis in self.axes if axis.name == name)
                yield DimSummary(str(name), places, f"equal to {first.label}", self.line)

    @property
    def _definition(self) -> str:
        return expression_text(self.dim, {str(symbol): label for symbol, label in self.symbols.items()})


def _are_equal(*sizes: int) -> bool:
    return len(set(sizes)) == 1


def dim_relations(facts: SizeProof) -> Iterator[DimRelation]:
    """Yields the relations between dims that the user requested separately.

    Dims with one name, and the dims of a `Dim` expression such as `2*batch`, were requested as related. The module runs
    on tensors without values, so the patches of the capture must be active. A program from a file does not tell how its
    dims were requested.
    """
    if is_from_file(facts.sizes.shape_env):
        return
    for dim, axes in _axes_by_dim(facts.sizes.inputs).items():
        first, *others = dict.fromkeys(axis.name for axis in axes)
        symbols = {symbol: facts.sizes.names.get(symbol, str(symbol)) for symbol in sorted(dim.free_symbols, key=str)}
        kinds = [True] if others or (first is None and len(axes) > 1) else []
        if not dim.is_Symbol and not any(_is_dim_expression(axis.name) for axis in axes):
            kinds.append(False)
        if kinds:
            guards = _guards(facts.sizes.inputs, axes)
            line = next(map(guard_place, guards), "")
            is_bound = bool(guards) and all(_raises(facts, guard.expr) for guard in guards)
            yield from (DimRelation(dim, axes, are_equal, symbols, line, is_bound) for are_equal in kinds)


def _guards(inputs: list[CapturedInput], axes: Sequence[_Axis]) -> list[Any]:
    """Returns the guards for which torch replaced the symbols of the axes by another expression."""
    guards = []
    for axis in axes:
        shape_env, own = inputs[axis.number].shape_env, inputs[axis.number].symbol(axis.axis)
        for guard in getattr(shape_env, "guards", ()) if own is not None and shape_env.replace(own) != own else ():
            is_equation = isinstance(guard.expr, sympy.Eq) and own in guard.expr.free_symbols
            if is_equation and shape_env.replace(guard.expr) == sympy.true:
                guards.append(guard)
    return guards


def _raises(facts: SizeProof, equation: Any) -> bool:
    """Returns whether the module raises an exception where two sizes differ, also where a broadcast may help.

    One size of an axis at a time is another one: one more, and those for which a side of the equation is 1.
    """
    places: dict[sympy.Symbol, dict[tuple[int, int], int]] = {}
    for number, captured in enumerate(facts.sizes.inputs):
        for axis in captured.request.axes:
            places.setdefault(captured.symbol(axis), {})[number, axis] = facts.sizes.size(captured.dim(axis))
    if not equation.free_symbols <= places.keys():
        return False
    given = {symbol: next(iter(places[symbol].values())) for symbol in equation.free_symbols}
    for symbol, size in given.items():
        others = {key: value for key, value in given.items() if key != symbol}
        is_one = condition_of(sympy.Or(*(sympy.Eq(side.xreplace(others), 1) for side in equation.args)), (symbol,))
        for other in (size + 1, *(n for n in range(1, size) if is_one(n))):
            if not facts.raises_for(dict.fromkeys(places[symbol], other)):
                return False
    return bool(given)


def describe_relation(relation: Any, call: str, labels: Mapping[str, str]) -> str:
    """Returns the warning that the model is correct only where an equation holds, such as `total == new + past`."""
    return f"The exported model is correct only where {expression_text(relation, labels)}, which {call} requires."


def _is_dim_expression(name: str | None) -> bool:
    """Returns whether a name comes from a `Dim` expression, such as ``2*batch``, which the user requested."""
    return name is not None and not name.isidentifier() and not isinstance(name, AxisText)


def _axes_by_dim(inputs: list[CapturedInput]) -> dict[Any, list[_Axis]]:
    """Returns the axes requested as dynamic by the expression that torch gives their sizes."""
    requested = [
        (_Axis(number, axis, captured.axis_text(axis), name), captured.dim(axis))
        for number, captured in enumerate(inputs)
        for axis, name in captured.request.axes.items()
    ]
    sizes = {axis.name: dim for axis, dim in requested if axis.name is not None and not isinstance(dim, int)}
    axes: dict[Any, list[_Axis]] = {}
    for axis, dim in requested:
        is_stated = axis.name is not None and dim_expression(axis.name, sizes) is not None  # `symbol_names` compares it
        if not isinstance(dim, int) and not is_stated:
            axes.setdefault(dim, []).append(axis)
    return axes


def _listed(dims: list[str]) -> str:
    """Returns `a, b and c`, with the first few dims of a long list."""
    if len(dims) == 1:
        return dims[0]
    if len(dims) > _LISTED + 1:
        return ", ".join(islice(dims, _LISTED)) + f" and {len(dims) - _LISTED} more"
    return f"{', '.join(dims[:-1])} and {dims[-1]}"
