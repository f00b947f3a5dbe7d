"""The language of patterns: a Python expression that reads like the computation that it matches.

=================================  =====================================================================================
``Sigmoid(x)``                     a node of this operator of ONNX's default domain; its first result
``com.microsoft.Gelu(x)``          a node of another domain
``(MatMul | Gemm)(x, y)``          a node of one of several operators
``Split(x, ...)[1]``               another result of a node; ``...`` is any further inputs
``Concat(*parts)``                 a node with any number of inputs, as a tuple
``Max(..., Expand(x, _), ...)``    a node with this operand at any place
``x + y``, ``-``, ``*``, ``/``     Add, Sub, Mul, Div, and Pow for ``**``, Neg for ``-x``
``x``                              any value; a name that occurs twice is one value, ``_`` any value each time
``2.0``                            a constant of one element that is this number within float32's precision
``number.n``                       any constant of one element, as a float
``integers.axes``, ``const.c``     any small constant of integers as a list; any small constant as an array
``weight.w``                       an initializer: a constant or a weight, of any size
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
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import onnx_ir as ir

from fx_onnx.passes._pattern_parts import (
    Pattern,
    _AlternativesPart,
    _BoundName,
    _NumberPart,
    _OperationPart,
    _ProductPart,
    _ValuePart,
)
from fx_onnx.passes.matchers import constant_array, constant_integers, constant_number, initializer

__all__ = ["PatternError", "parse"]

_BINARY = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.Pow: "Pow"}
_CONSTANTS: Mapping[str, Callable[[ir.Value | None], Any]] = {
    "const": constant_array, "integers": constant_integers, "number": constant_number, "weight": initializer,
}  # fmt: skip


class PatternError(ValueError):
    """The text is no pattern; the message names the part."""


class _Scope(NamedTuple):
    """What holds for a part of a text: whether its nodes are shared, and the conditions on values by name."""

    shared: bool
    where: Mapping[str, Callable[[ir.Value], bool]]


def parse(text: str, where: Mapping[str, Callable[[ir.Value], bool]] | None = None) -> Pattern:
    """Returns the pattern of a text.

    Args:
        text: the text.
        where: conditions on values by name, which the pattern checks early where it can.

    Raises:
        PatternError: the text is no pattern.
    """
    try:
        expression = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise PatternError(f"{text!r} is no expression of Python: {error.msg}") from None
    return _parse(expression, _Scope(False, where or {}))


def _parse(part: ast.expr, scope: _Scope) -> Pattern:
    number = _literal(part)
    if number is not None:
        return _NumberPart(number)
    match part:
        case ast.Name(name):
            pattern: Pattern = _ValuePart(name, holds=scope.where.get(name))
        case ast.Constant(None):
            pattern = _ValuePart(None)
        case ast.Attribute(ast.Name(kind), name) if kind in _CONSTANTS:
            pattern = _ValuePart(name, _CONSTANTS[kind], scope.where.get(name))
        case ast.UnaryOp(ast.Invert(), inner):
            pattern = _parse(inner, scope._replace(shared=True))
        case ast.UnaryOp(ast.USub(), operand):
            pattern = _OperationPart((("", "Neg"),), (_parse(operand, scope),), shared=scope.shared)
        case ast.BinOp(first, ast.BitOr(), second):
            choices = _parse(first, scope), _parse(second, scope)
            pattern = _AlternativesPart(choices)
            if isinstance(choices[0], _ValuePart) and choices[1] == _ValuePart(None):
                pattern = replace(choices[0], optional=True)
        case ast.BinOp(left, operator, right) if type(operator) in _BINARY:
            operands = _parse(left, scope), _parse(right, scope)
            pattern = _parse_product(part, scope) or _OperationPart(
                (("", _BINARY[type(operator)]),), operands, shared=scope.shared
            )
        case ast.Subscript(ast.Call() as call, ast.Constant(int(result))):
            pattern = _parse_call(call, scope, result)
        case ast.Call():
            pattern = _parse_call(part, scope, 0)
        case _:
            raise PatternError(f"{ast.unparse(part)!r} is no part of a pattern")
    return pattern


def _literal(part: ast.expr) -> float | None:
    """Returns the number of a literal, also of a negative one; None for another expression."""
    match part:
        case ast.Constant(float(number) | int(number)) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(ast.USub(), ast.Constant(float(number) | int(number))):
            return -number
    return None


def _parse_product(part: ast.expr, scope: _Scope) -> _ProductPart | None:
    """Returns a product that has a number or three factors; None for another expression."""
    numbers, factors = list[float | str](), list[ast.expr]()

    def collect(operand: ast.expr) -> None:
        number = _literal(operand)
        match operand:
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
                factors.append(operand)

    if not isinstance(part, ast.BinOp) or not isinstance(part.op, (ast.Mult, ast.Div)):
        return None
    collect(part)
    if not numbers and len(factors) <= 2:
        return None
    patterns = tuple(_parse(factor, scope) for factor in factors)
    if any(isinstance(item, str) for item in numbers):
        if len(numbers) > 1:
            raise PatternError(f"{ast.unparse(part)!r} has a number beside {numbers}, which is the product of all")
        return _ProductPart(numbers[0], patterns, scope.shared)
    return _ProductPart(math.prod(item for item in numbers if isinstance(item, (int, float))), patterns, scope.shared)


def _parse_call(call: ast.Call, scope: _Scope, result: int) -> _OperationPart:
    roots = tuple(
        (domain, op_type)
        for domain, _, op_type in (text.rpartition(".") for text in ast.unparse(call.func).split(" | "))
    )
    operands, rest = list(call.args), None
    anywhere = len(operands) == 3 and all(ast.unparse(operand) == "..." for operand in operands[::2])
    operands = operands[anywhere:]
    match operands[-1:]:
        case [ast.Constant(value)] if value is ...:
            operands.pop()
            rest = "_"
        case [ast.Starred(ast.Name(name))]:
            operands.pop()
            rest = name
    attributes = tuple((str(keyword.arg), _parse_attribute(keyword.value)) for keyword in call.keywords)
    for bound in (rest, *(wanted for _, wanted in attributes if isinstance(wanted, _BoundName))):
        if bound in scope.where:
            raise PatternError(f"{bound} is no value, so a condition of where cannot test it")
    patterns = tuple(_parse(operand, scope) for operand in operands)
    return _OperationPart(roots, patterns, rest, anywhere, attributes, result, scope.shared)


def _parse_attribute(wanted: ast.expr) -> Any:
    if isinstance(wanted, ast.Name):
        return ir.DataType.__members__.get(wanted.id) or _BoundName(wanted.id)
    return ast.literal_eval(wanted)
