"""The parts of patterns, and how they match.

A pattern is compiled when it is first used: each part becomes a function that calls the next one where it matches. So
the alternatives of a part are tried in turn until what follows, at last the function of the rule, accepts the match.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import onnx
import onnx_ir as ir

from fx_onnx.onnx_model.schemas import default_attribute
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import Kinds, constant_number, is_absorbable, kind_of

__all__ = ["Match", "Matcher", "NodeStep", "Operators", "Pattern"]

_COMMUTATIVE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min"})
_PRECISION = 2e-7  # of float32


class Match:
    """What matches so far at one node. A part adds to it, and takes back what it added if a later part does not match.

    Attributes:
        node: the node at which the pattern ends.
        editor: the editor of its graph.
        bound: the values, constants and attributes by name; and by a number the operands that are being matched.
        visited: the nodes of each operation, the root first, and whether nodes outside of the match may read them.
    """

    __slots__ = ("bound", "editor", "node", "visited")

    def __init__(self, node: ir.Node, editor: Editor) -> None:
        self.node, self.editor = node, editor
        self.bound: dict[str | int, Any] = {}
        self.visited: list[tuple[Sequence[ir.Node], bool]] = []

    @property
    def nodes(self) -> tuple[ir.Node, ...]:
        """The nodes, the root first."""
        return tuple(dict.fromkeys(itertools.chain.from_iterable([nodes for nodes, _ in self.visited])))

    def bind(self, names: Sequence[str], values: Sequence[Any], then: _Then) -> bool:
        """Binds names and continues; False if a name has another value, or if nothing accepts the match."""
        bound = self.bound
        before = len(bound)
        for name, value in zip(names, values):  # noqa: B905  # strict takes time
            known = bound.setdefault(name, value)
            if known is not value and (isinstance(value, ir.Value) or not np.array_equal(known, value)):
                break
        else:
            if then(self):
                return True
        while len(bound) > before:  # a dict gives up first what it got last
            bound.popitem()
        return False


Operators = tuple[tuple[str, str], ...]
"""The domain and type of several operators."""

_Then = Callable[[Match], bool]
"""What follows a part that matches: the other parts, then what accepts the match. Returns whether it was accepted."""

_Admits = Callable[[str | None], bool]

_Step = Callable[[Any, Match], bool]
"""Matches a part to a value, or to a constant or an attribute, and continues."""

NodeStep = Callable[[ir.Node, Match], bool]
"""Matches a part to a node of one of its operators, and continues."""


class Matcher(NamedTuple):
    """Matches a part to a node.

    Attributes:
        roots: the operators of the node.
        fits: returns whether a node whose operands have these kinds may match.
        step: the function.
    """

    roots: Operators
    fits: Callable[[Kinds], bool]
    step: NodeStep


_CONSTANTS = frozenset({"", "Constant"})

_keys = itertools.count()


class Pattern(ABC):
    """A part of a pattern. It is compiled into functions each of which calls the next one where it matches."""

    roots: Operators
    """The operators at which the pattern ends; empty if it matches other values only."""

    attributes: tuple[tuple[str, Any], ...] = ()
    """The attributes that a node of these operators must have, and what their values are."""

    @property
    def admits(self) -> _Admits:
        """Returns whether a value may match, by its kind."""
        return frozenset([op_type for _, op_type in self.roots]).__contains__

    @abstractmethod
    def step(self, then: _Then) -> _Step:
        """Returns the function that matches a value."""

    def matchers(self, then: _Then) -> Sequence[Matcher]:
        """Returns the functions that match a node."""
        return ()

    def parts(self) -> Sequence[Pattern]:
        """Returns the patterns of which this one consists."""
        return ()

    def own_names(self) -> Sequence[str]:
        """Returns the names that this part binds itself."""
        return ()

    def all_parts(self) -> Iterator[Pattern]:
        """Yields the pattern and all patterns inside it."""
        yield self
        for part in self.parts():
            yield from part.all_parts()


def _by_type(operators: Operators) -> dict[str, tuple[str, ...]]:
    """Returns the domains of operators by their type."""
    return {op_type: tuple(domain for domain, other in operators if other == op_type) for _, op_type in operators}


_Operands = Callable[[Sequence[ir.Value | None], Sequence[Any], Sequence[ir.Node], Match], bool]


def _test(pattern: Pattern) -> Callable[[ir.Value | None], bool] | None:
    """Returns a check of an operand without cost: whether it is present, and of a kind that the pattern admits."""
    if _is_plain(pattern):
        holds = pattern.holds
        if pattern.name is None:
            return lambda value: value is None
        if pattern.optional:
            return None if holds is None else lambda value: value is None or holds(value)
        return lambda value: value is not None and (holds is None or holds(value))
    admits = pattern.admits
    return lambda value: admits(kind_of(value))


def _check(patterns: Sequence[Pattern]) -> Callable[[Sequence[ir.Value | None]], bool]:
    """Returns the check of all operands, the most special first."""
    tests = [(index, test) for index, pattern in enumerate(patterns) if (test := _test(pattern)) is not None]
    tests.sort(key=lambda pair: _is_plain(patterns[pair[0]]))

    def may_match(values: Sequence[ir.Value | None]) -> bool:
        for index, test in tests:  # noqa: SIM110  # a generator takes longer
            if not test(values[index]):
                return False
        return True

    return may_match


def _operands(patterns: Sequence[Pattern], names: Sequence[str], shared: bool, then: _Then) -> _Operands:
    """Returns what matches operands that passed ``_check``, those first that only get a name, and continues.

    Its arguments are the operands, the values of ``names``, the nodes that have the operands, and what matches so far.
    """
    named = [index for index, pattern in enumerate(patterns) if _is_plain(pattern) and pattern.name not in (None, "_")]
    names = [*names, *(name for index in named for name in patterns[index].own_names())]
    key = next(_keys)
    inner = [index for index, pattern in enumerate(patterns) if not _is_plain(pattern)]
    for index in reversed(inner):
        then = _operand(key, index, patterns[index].step(then))

    def match_operands(
        values: Sequence[ir.Value | None], more: Sequence[Any], nodes: Sequence[ir.Node], match: Match
    ) -> bool:
        if inner:
            match.bound[key] = values
        match.visited.append((nodes, shared))
        if match.bind(names, [*more, *map(values.__getitem__, named)], then) if names else then(match):
            return True
        match.visited.pop()
        return False

    return match_operands


def _operand(key: int, index: int, step: _Step) -> _Then:
    return lambda match: step(match.bound[key][index], match)


@dataclass(frozen=True)
class _ValuePart(Pattern):
    """Any value, a constant of one kind, or an absent input.

    Attributes:
        name: the name to bind; None for an absent input.
        read: returns the constant of a value; None for values of all kinds.
        holds: the condition on the value or the constant.
        optional: whether an absent input matches too, as None.
    """

    name: str | None
    read: Callable[[ir.Value | None], Any] | None = None
    holds: Callable[[ir.Value], bool] | None = None
    optional: bool = False
    roots = ()

    @property
    def admits(self) -> _Admits:
        if self.read is not None:
            return _CONSTANTS.union([None] if self.optional else ()).__contains__
        return lambda kind: self.optional or (kind is None) == (self.name is None)

    def own_names(self) -> Sequence[str]:
        return () if self.name is None else (self.name,)

    def step(self, then: _Then) -> _Step:
        name, read, holds, optional = self.name, self.read, self.holds, self.optional
        if name is None:
            return lambda value, match: value is None and then(match)
        if name == "_":
            return lambda value, match: (optional or value is not None) and then(match)

        def step(value: ir.Value | None, match: Match) -> bool:
            bound = value if read is None else read(value)
            if bound is None:
                return optional and value is None and match.bind((name,), (None,), then)
            return (holds is None or holds(bound)) and match.bind((name,), (bound,), then)

        return step


def _is_plain(pattern: Pattern) -> TypeGuard[_ValuePart]:
    """Returns whether it matches any value, or none."""
    return isinstance(pattern, _ValuePart) and pattern.read is None


@dataclass(frozen=True)
class _NumberPart(Pattern):
    """A constant of one element that is this number."""

    number: float
    roots = ()
    admits = _CONSTANTS.__contains__

    def matches(self, number: float | None) -> bool:
        return number is not None and math.isclose(number, self.number, rel_tol=_PRECISION)

    def step(self, then: _Then) -> _Step:
        return lambda value, match: self.matches(constant_number(value)) and then(match)


@dataclass(frozen=True)
class _AlternativesPart(Pattern):
    """One of several patterns, the first that matches."""

    choices: tuple[Pattern, ...]

    @property
    def roots(self) -> Operators:  # type: ignore[override]
        return tuple(root for choice in self.choices for root in choice.roots)

    @property
    def admits(self) -> _Admits:
        choices = [choice.admits for choice in self.choices]
        return lambda kind: any(admits(kind) for admits in choices)

    def parts(self) -> Sequence[Pattern]:
        return self.choices

    def step(self, then: _Then) -> _Step:
        steps = [choice.step(then) for choice in self.choices]
        return lambda value, match: any(step(value, match) for step in steps)

    def matchers(self, then: _Then) -> Sequence[Matcher]:
        return [matcher for choice in self.choices for matcher in choice.matchers(then)]


class _BoundName(str):
    """The name that an attribute's value gets."""


@dataclass(frozen=True)
class _OperationPart(Pattern):
    """A node.

    Attributes:
        roots: its domain and type, or those that it may have.
        operands: the patterns of its inputs.
        rest: the name of the tuple of all further inputs; None if there are none.
        anywhere: whether the one operand may stand at any place.
        attributes: the wanted value, or the name to bind, as a ``_BoundName``.
        result: which of its results.
        shared: whether nodes outside of the match may read it.
    """

    roots: Operators
    operands: tuple[Pattern, ...]
    rest: str | None = None
    anywhere: bool = False
    attributes: tuple[tuple[str, Any], ...] = ()
    result: int = 0
    shared: bool = False

    def parts(self) -> Sequence[Pattern]:
        return self.operands

    def own_names(self) -> Sequence[str]:
        bound = [wanted for _, wanted in self.attributes if isinstance(wanted, _BoundName)]
        return bound if self.rest is None else [*bound, self.rest]

    def step(self, then: _Then) -> _Step:
        ((roots, _, node_step),) = self.matchers(then)
        domains, result = _by_type(roots), self.result

        def step(value: ir.Value | None, match: Match) -> bool:
            node = None if value is None else value.producer()
            if value is None or node is None or node.domain not in domains.get(node.op_type, ()):
                return False
            return value.index() == result and node_step(node, match)

        return step

    def matchers(self, then: _Then) -> Sequence[Matcher]:
        count, rest, anywhere, attributes = len(self.operands), self.rest, self.anywhere, self.attributes
        names = [name for name in self.own_names() if name != "_"]
        may_match, match_operands = _check(self.operands), _operands(self.operands, names, self.shared, then)
        commutative = [name for domain, name in self.roots if count == 2 and not domain and name in _COMMUTATIVE]
        has_rest = rest not in (None, "_")

        def step(node: ir.Node, match: Match) -> bool:
            inputs: Sequence[ir.Value | None] = node.inputs
            if len(inputs) < count:
                inputs = (*inputs, *(None,) * (count - len(inputs)))
            elif len(inputs) > count and rest is None and any(value is not None for value in inputs[count:]):
                return False
            orders: list[Sequence[ir.Value | None]]
            if anywhere:
                orders = [(value, *inputs) for value in inputs if may_match((value,))]
            else:
                orders = [inputs] if may_match(inputs) else []
                if commutative and node.op_type in commutative and may_match(inputs[::-1]):
                    orders.append(inputs[::-1])
            if not orders:
                return False
            more = _bound_attributes(node, attributes) if attributes else []
            if more is None:
                return False
            if has_rest:
                more.append(tuple(inputs[count:]))
            for order in orders:  # noqa: SIM110  # a generator takes longer
                if match_operands(order, more, (node,), match):
                    return True
            return False

        wanted = [operand.admits for operand in self.operands]

        def fits(kinds: Kinds) -> bool:
            kinds = (*kinds, *[None] * (count - len(kinds)))
            orders = [(kind,) for kind in kinds] if anywhere else [kinds, kinds[::-1]] if commutative else [kinds]
            return any(all(admits(kind) for admits, kind in zip(wanted, order, strict=False)) for order in orders)

        return [Matcher(self.roots, fits, step)]


def _bound_attributes(node: ir.Node, attributes: Sequence[tuple[str, Any]]) -> list[Any] | None:
    """Returns the values of the attributes that get a name; None if one is a reference, or not the wanted value."""
    values = []
    for name, wanted in attributes:
        value = _attribute(node, name)
        if isinstance(wanted, _BoundName) and value is not _IS_REFERENCE:
            values.append(value)
        elif value != wanted:
            return None
    return values


_IS_REFERENCE = object()
_NEWEST = onnx.defs.onnx_opset_version()


def _attribute(node: ir.Node, name: str) -> Any:
    """Returns the value of an attribute, or its default; ``_IS_REFERENCE`` for one of the enclosing function."""
    given = node.attributes.data.get(name)
    if given is not None and given.is_ref():
        return _IS_REFERENCE
    attribute = default_attribute(node.op_type, name, _NEWEST, node.domain) if given is None else given
    value = None if attribute is None else attribute.value
    return list(value) if isinstance(value, (tuple, list)) else value


@dataclass(frozen=True)
class _ProductPart(Pattern):
    """A product of numbers and other factors, in every order and association.

    Attributes:
        number: the product of the numbers, or the name to bind.
        factors: the patterns of the other factors.
        shared: whether nodes outside of the match may read the product.
    """

    number: float | str
    factors: tuple[Pattern, ...]
    shared: bool = False
    roots = (("", "Mul"), ("", "Div"))

    @property
    def admits(self) -> _Admits:
        return super().admits if len(self.factors) > 1 else lambda kind: kind is not None  # the number may be 1

    def parts(self) -> Sequence[Pattern]:
        return self.factors

    def own_names(self) -> Sequence[str]:
        return (self.number,) if isinstance(self.number, str) else ()

    def step(self, then: _Then) -> _Step:
        step = self._step(then)
        is_scaled = len(self.factors) == 1
        return lambda value, match: value is not None and step(*_factors(value, value.producer(), is_scaled), match)

    def matchers(self, then: _Then) -> Sequence[Matcher]:
        step = self._step(then)
        wanted, product = [factor.admits for factor in self.factors], {op_type for _, op_type in self.roots}
        is_scaled = len(self.factors) == 1

        def fits(kinds: Kinds) -> bool:
            return not product.isdisjoint(kinds) or all(any(map(admits, kinds)) for admits in wanted)

        return [Matcher(self.roots, fits, lambda node, match: step(*_factors(None, node, is_scaled), match))]

    def _step(self, then: _Then) -> Callable[[float, Sequence[ir.Value], Sequence[ir.Node], Match], bool]:
        wanted = None if isinstance(self.number, str) else _NumberPart(self.number)
        count, may_match = len(self.factors), _check(self.factors)
        match_operands = _operands(self.factors, self.own_names(), self.shared, then)

        def step(product: float, values: Sequence[ir.Value], nodes: Sequence[ir.Node], match: Match) -> bool:
            if len(values) != count or (wanted is not None and not wanted.matches(product)):
                return False
            more = () if wanted is not None else (product,)
            orders = filter(may_match, dict.fromkeys(itertools.permutations(values)))
            return any(match_operands(order, more, nodes, match) for order in orders)

        return step


def _factors(
    value: ir.Value | None, node: ir.Node | None, is_scaled: bool
) -> tuple[float, list[ir.Value], list[ir.Node]]:
    """Returns a value, or the result of a node, as the product of a number and factors, and the nodes between.

    With ``is_scaled``, a product without a number is one factor.
    """
    whole: tuple[float, list[ir.Value], list[ir.Node]] = (1.0, [] if value is None else [value], [])
    if node is None or node.op_type not in ("Mul", "Div") or node.domain:
        return whole
    numbers = [constant_number(operand) for operand in node.inputs]
    if (node.op_type == "Div" and numbers[1] in (None, 0.0)) or (is_scaled and numbers == [None, None]):
        return whole
    product, nodes = 1.0, [node]
    factors: list[ir.Value] = []
    for index, (number, operand) in enumerate(zip(numbers, node.inputs, strict=True)):
        if number is not None:
            product = product / number if node.op_type == "Div" and index else product * number
        elif operand is not None:
            inner, more, between = _factors(operand, operand.producer() if is_absorbable(operand) else None, is_scaled)
            product, factors, nodes = product * inner, factors + more, nodes + between
    return product, factors, nodes
