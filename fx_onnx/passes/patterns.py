"""The language of patterns: a Python expression that reads like the computation that it matches.

=================================  =====================================================================================
``Sigmoid(x)``                     a node of this operator of ONNX's default domain; its first result
``com.microsoft.Gelu(x)``          a node of another domain
``(MatMul | Gemm)(x, y)``          a node of one of several operators
``Split(x, ...)[1]``               another result of a node; ``...`` is any further inputs
``Concat(*parts)``                 a node with any number of inputs, as a tuple
``x + y``, ``-``, ``*``, ``/``     Add, Sub, Mul, Div, and Pow for ``**``, Neg for ``-x``
``x``                              any value; a name that occurs twice is one value, ``_`` any value each time
``2.0``                            a constant of one element that is this number within float32's precision
``number.n``                       any constant of one element, as a float
``integers.axes``, ``const.c``     any small constant of integers as a list; any small constant as an array
``Softmax(x, axis=-1)``            an attribute of this value, by default the newest schema's; ``axis=a`` binds it
``Cast(x, to=BOOL)``               an attribute that is this dtype, by its name in ``ir.DataType``
``Cast(x) | x``                    alternatives; ``None`` is an absent input
``~Sqrt(x)``                       a node that other nodes may read too, with all before it
=================================  =====================================================================================

The operands of Add, Mul, And, Or, Xor, Equal, Max and Min match in both orders. A product that contains a number, or
has three factors or more, matches in every order and association of Mul, and of Div by a constant; the numbers match by
their product, and ``number.n`` in a product is 1 where there is none.
"""

from __future__ import annotations

import ast
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir

from fx_onnx.passes.matchers import constant_array, constant_integers, constant_number, is_absorbable

__all__ = ["Match", "Pattern", "PatternError", "parse"]

_BINARY = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.Pow: "Pow"}
_COMMUTATIVE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min"})
_CONSTANTS: Mapping[str, Callable[[ir.Value | None], Any]] = {
    "const": constant_array, "integers": constant_integers, "number": constant_number,
}  # fmt: skip
_PRECISION = 2e-7  # of float32


class PatternError(ValueError):
    """The text is no pattern; the message names the part."""


class Match(NamedTuple):
    """What a pattern matched so far.

    Attributes:
        bound: the values, constants and attributes by name.
        nodes: the nodes, the root first; a node that two operands read is there twice.
        private: those of them that nothing outside of the match may read.
    """

    bound: Mapping[str, Any] = {}
    nodes: tuple[ir.Node, ...] = ()
    private: tuple[ir.Node, ...] = ()

    def bind(self, name: str, found: Any) -> Match | None:
        """Returns the match with a name; None if the name has another value."""
        if name == "_":
            return self
        if name not in self.bound:
            return self._replace(bound={**self.bound, name: found})
        known = self.bound[name]
        is_same = known is found or (not isinstance(found, ir.Value) and np.array_equal(known, found))
        return self if is_same else None

    def visit(self, *nodes: ir.Node, shared: bool) -> Match:
        """Returns the match with more nodes."""
        return Match(self.bound, (*self.nodes, *nodes), self.private if shared else (*self.private, *nodes))


class Pattern:
    """A part of a pattern."""

    roots: tuple[tuple[str, str], ...]
    """The domain and type of the operators at which the pattern ends; empty if it matches other values too."""

    def may_match(self, value: ir.Value | None) -> bool:
        """Returns whether the producer of the value is one of the roots. It is a quick check before ``match``."""
        node = None if value is None else value.producer()
        return node is not None and (node.domain, node.op_type) in self.roots

    def match(self, value: ir.Value | None, found: Match) -> Iterator[Match]:
        """Yields the ways in which the pattern matches a value."""
        node = None if value is None else value.producer()
        if node is not None and (node.domain, node.op_type) in self.roots:
            yield from self.match_node(node, found)

    def match_node(self, node: ir.Node, found: Match) -> Iterator[Match]:
        """Yields the ways in which the pattern matches a node."""
        return iter(())

    def parts(self) -> Sequence[Pattern]:
        """Returns the patterns of which this one consists."""
        return ()

    def own_names(self) -> Sequence[str]:
        """Returns the names that this part binds itself."""
        return ()

    def names(self) -> Iterator[str]:
        """Yields all names that the pattern binds."""
        yield from self.own_names()
        for each in self.parts():
            yield from each.names()

    def operators(self) -> Iterator[tuple[str, str]]:
        """Yields the domain and type of all operators of the pattern."""
        yield from self.roots
        for each in self.parts():
            yield from each.operators()


@dataclass(frozen=True)
class _Value(Pattern):
    """Any value, a constant of one kind, or an absent input."""

    name: str | None
    read: Callable[[ir.Value | None], Any] = lambda value: value
    roots = ()

    def own_names(self) -> Sequence[str]:
        return () if self.name is None else (self.name,)

    def may_match(self, value: ir.Value | None) -> bool:
        return (value is None) == (self.name is None)

    def match(self, value: ir.Value | None, found: Match) -> Iterator[Match]:
        if self.name is None:
            if value is None:
                yield found
            return
        bound = self.read(value)
        after = None if bound is None else found.bind(self.name, bound)
        if after is not None:
            yield after


@dataclass(frozen=True)
class _Number(Pattern):
    number: float
    roots = ()

    def may_match(self, value: ir.Value | None) -> bool:
        return value is not None

    def match(self, value: ir.Value | None, found: Match) -> Iterator[Match]:
        number = constant_number(value)
        if number is not None and math.isclose(number, self.number, rel_tol=_PRECISION):
            yield found


@dataclass(frozen=True)
class _Alternatives(Pattern):
    choices: tuple[Pattern, ...]
    roots: tuple[tuple[str, str], ...]

    def parts(self) -> Sequence[Pattern]:
        return self.choices

    def may_match(self, value: ir.Value | None) -> bool:
        return any(each.may_match(value) for each in self.choices)

    def match(self, value: ir.Value | None, found: Match) -> Iterator[Match]:
        for each in self.choices:
            if each.may_match(value):
                yield from each.match(value, found)

    def match_node(self, node: ir.Node, found: Match) -> Iterator[Match]:
        for each in self.choices:
            if (node.domain, node.op_type) in each.roots:
                yield from each.match_node(node, found)


@dataclass(frozen=True)
class _Operation(Pattern):
    """A node.

    Attributes:
        roots: its domain and type, or those that it may have.
        operands: the patterns of its inputs.
        rest: the name of the tuple of all further inputs; None if there are none.
        attributes: the wanted value, or the name to bind, as a ``_Bound``.
        result: which of its results.
        shared: whether nodes outside of the match may read it.
    """

    roots: tuple[tuple[str, str], ...]
    operands: tuple[Pattern, ...]
    rest: str | None = None
    attributes: tuple[tuple[str, Any], ...] = ()
    result: int = 0
    shared: bool = False

    def parts(self) -> Sequence[Pattern]:
        return self.operands

    def own_names(self) -> Sequence[str]:
        bound = [wanted for _, wanted in self.attributes if isinstance(wanted, _Bound)]
        return bound if self.rest is None else [*bound, self.rest]

    def match(self, value: ir.Value | None, found: Match) -> Iterator[Match]:
        if value is not None and value.index() == self.result:
            yield from super().match(value, found)

    def match_node(self, node: ir.Node, found: Match) -> Iterator[Match]:
        count = len(self.operands)
        inputs: list[ir.Value | None] = list(node.inputs)
        inputs += [None] * (count - len(inputs))
        if self.rest is None and any(each is not None for each in inputs[count:]):
            return
        orders: Sequence[Sequence[ir.Value | None]] = [inputs[:count]]
        if count == 2 and node.op_type in _COMMUTATIVE and not node.domain:
            orders = [inputs, inputs[::-1]]
        orders = [order for order in orders if all(map(_may_match, self.operands, order))]
        if not orders:
            return
        after: Match | None = found.visit(node, shared=self.shared)
        if self.rest is not None and after is not None:
            after = after.bind(self.rest, tuple(inputs[count:]))
        for name, wanted in self.attributes:
            after = None if after is None else _match_attribute(node, name, wanted, after)
        if after is not None:
            for order in orders:
                yield from _match_all(self.operands, order, after)


def _may_match(pattern: Pattern, value: ir.Value | None) -> bool:
    return pattern.may_match(value)


def _match_all(patterns: Sequence[Pattern], values: Sequence[ir.Value | None], found: Match) -> Iterator[Match]:
    if not patterns:
        yield found
        return
    for after in patterns[0].match(values[0], found):
        yield from _match_all(patterns[1:], values[1:], after)


class _Bound(str):
    """The name that an attribute's value gets."""


def _match_attribute(node: ir.Node, name: str, wanted: Any, found: Match) -> Match | None:
    given = node.attributes.get(name)
    if given is not None and given.is_ref():
        return None  # its value is that of an attribute of the enclosing function
    value = _default(node.domain, node.op_type, name) if given is None else given.value
    value = list(value) if isinstance(value, (tuple, list)) else value
    if isinstance(wanted, _Bound):
        return found.bind(wanted, value)
    return found if value == wanted else None


@functools.cache
def _default(domain: str, op_type: str, name: str) -> Any:
    """Returns the default of an attribute in the newest schema; None if there is none."""
    if not onnx.defs.has(op_type, domain):
        return None
    declared = onnx.defs.get_schema(op_type, domain=domain).attributes.get(name)
    if declared is None or not declared.default_value.name:
        return None
    return ir.serde.deserialize_attribute(declared.default_value).value


@dataclass(frozen=True)
class _Product(Pattern):
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

    def parts(self) -> Sequence[Pattern]:
        return self.factors

    def own_names(self) -> Sequence[str]:
        return (self.number,) if isinstance(self.number, str) else ()

    def may_match(self, value: ir.Value | None) -> bool:
        return len(self.factors) == 1 or super().may_match(value)

    def match(self, value: ir.Value | None, found: Match) -> Iterator[Match]:
        if value is not None:
            yield from self._match(_factors(value, value.producer()), found)

    def match_node(self, node: ir.Node, found: Match) -> Iterator[Match]:
        yield from self._match(_factors(None, node), found)

    def _match(self, product: tuple[float, list[ir.Value], list[ir.Node]], found: Match) -> Iterator[Match]:
        number, values, nodes = product
        if len(values) != len(self.factors):
            return
        if isinstance(self.number, str):
            after = found.bind(self.number, number)
        else:
            after = found if math.isclose(number, self.number, rel_tol=_PRECISION) else None
        if after is None:
            return
        after = after.visit(*nodes, shared=self.shared)
        seen = set[tuple[int, ...]]()
        for order in itertools.permutations(values):
            if (key := tuple(map(id, order))) not in seen and all(map(_may_match, self.factors, order)):
                seen.add(key)
                yield from _match_all(self.factors, order, after)


def _factors(value: ir.Value | None, node: ir.Node | None) -> tuple[float, list[ir.Value], list[ir.Node]]:
    """Returns a value, or the result of a node, as the product of a number and factors, and the nodes between."""
    whole = (1.0, [] if value is None else [value], list[ir.Node]())
    if node is None or node.op_type not in ("Mul", "Div") or node.domain:
        return whole
    numbers = [constant_number(each) for each in node.inputs]
    if node.op_type == "Div" and numbers[1] in (None, 0.0):
        return whole
    product, factors, nodes = 1.0, list[ir.Value](), [node]
    for place, (number, each) in enumerate(zip(numbers, node.inputs, strict=True)):
        if number is not None:
            product = product / number if node.op_type == "Div" and place else product * number
        elif each is not None:
            inner, more, between = _factors(each, each.producer() if is_absorbable(each) else None)
            product, factors, nodes = product * inner, factors + more, nodes + between
    return product, factors, nodes


# ---------------------------------------------------------------- parsing


def parse(text: str) -> Pattern:
    """Returns the pattern of a text.

    Raises:
        PatternError: the text is no pattern.
    """
    try:
        expression = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise PatternError(f"{text!r} is no expression of Python: {error.msg}") from None
    return _parse(expression, shared=False)


def _parse(part: ast.expr, shared: bool) -> Pattern:
    number = _literal(part)
    if number is not None:
        return _Number(number)
    match part:
        case ast.Name(name):
            found: Pattern = _Value(name)
        case ast.Constant(None):
            found = _Value(None)
        case ast.Attribute(ast.Name(kind), name) if kind in _CONSTANTS:
            found = _Value(name, _CONSTANTS[kind])
        case ast.UnaryOp(ast.Invert(), inner):
            found = _parse(inner, shared=True)
        case ast.UnaryOp(ast.USub(), operand):
            found = _Operation((("", "Neg"),), (_parse(operand, shared),), shared=shared)
        case ast.BinOp(first, ast.BitOr(), second):
            choices = _parse(first, shared), _parse(second, shared)
            found = _Alternatives(choices, tuple(root for each in choices for root in each.roots))
        case ast.BinOp(left, operator, right) if type(operator) in _BINARY:
            operands = _parse(left, shared), _parse(right, shared)
            found = _parse_product(part, shared) or _Operation(
                (("", _BINARY[type(operator)]),), operands, shared=shared
            )
        case ast.Subscript(ast.Call() as call, ast.Constant(int(result))):
            found = _parse_call(call, shared, result)
        case ast.Call():
            found = _parse_call(part, shared, 0)
        case _:
            raise PatternError(f"{ast.unparse(part)!r} is no part of a pattern")
    return found


def _literal(part: ast.expr) -> float | None:
    """Returns the number of a literal, also of a negative one; None for another expression."""
    match part:
        case ast.Constant(float(number) | int(number)) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(ast.USub(), ast.Constant(float(number) | int(number))):
            return -number
    return None


def _parse_product(part: ast.expr, shared: bool) -> _Product | None:
    """Returns a product that has a number or three factors; None for another expression."""
    numbers, factors = list[float | str](), list[ast.expr]()

    def collect(each: ast.expr) -> None:
        number = _literal(each)
        match each:
            case ast.BinOp(left, ast.Mult(), right):
                collect(left)
                collect(right)
            case ast.BinOp(left, ast.Div(), divisor) if (number := _literal(divisor)) is not None:
                collect(left)
                numbers.append(1 / number)
            case ast.Attribute(ast.Name("number"), bound):
                numbers.append(bound)
            case _ if number is not None:
                numbers.append(number)
            case _:
                factors.append(each)

    if not isinstance(part, ast.BinOp) or not isinstance(part.op, (ast.Mult, ast.Div)):
        return None
    collect(part)
    if not numbers and len(factors) <= 2:
        return None
    patterns = tuple(_parse(each, shared) for each in factors)
    if any(isinstance(each, str) for each in numbers):
        if len(numbers) > 1:
            raise PatternError(f"{ast.unparse(part)!r} has a number beside {numbers}, which is the product of all")
        return _Product(numbers[0], patterns, shared)
    return _Product(math.prod(each for each in numbers if isinstance(each, (int, float))), patterns, shared)


def _parse_call(call: ast.Call, shared: bool, result: int) -> _Operation:
    roots = tuple(
        (domain, op_type)
        for domain, _, op_type in (each.rpartition(".") for each in ast.unparse(call.func).split(" | "))
    )
    operands, rest = list(call.args), None
    match operands[-1:]:
        case [ast.Constant(value)] if value is ...:
            operands.pop()
            rest = "_"
        case [ast.Starred(ast.Name(name))]:
            operands.pop()
            rest = name
    attributes = tuple((str(each.arg), _parse_attribute(each.value)) for each in call.keywords)
    patterns = tuple(_parse(each, shared) for each in operands)
    return _Operation(roots, patterns, rest, attributes, result, shared)


def _parse_attribute(wanted: ast.expr) -> Any:
    if isinstance(wanted, ast.Name):
        return ir.DataType.__members__.get(wanted.id) or _Bound(wanted.id)
    return ast.literal_eval(wanted)
