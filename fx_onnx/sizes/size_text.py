"""Writes torch's expressions and conditions on sizes as Python, over the user's names for dims."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sympy
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

__all__ = [
    "DATA_DEPENDENT",
    "expression_text",
    "shape_text",
    "simple_condition",
    "sizes_in_words",
    "with_offsets_inside",
    "without_factors",
    "without_subtraction",
    "without_symbols",
]

DATA_DEPENDENT = "a size that depends on data"
"""The label of a symbol that no input has."""

_UNBOUNDED = 2**31 - 2  # torch's bounds from here on mean that there is none
_OPERATORS = {
    "Mod": "%", "PythonMod": "%", "FloorDiv": "//", "CleanDiv": "//", "IntTrueDiv": "/", "FloatTrueDiv": "/",
    "PowByNatural": "**", "FloatPow": "**", "BitwiseFn_bitwise_and": "&", "BitwiseFn_bitwise_or": "|",
    "BitwiseFn_bitwise_xor": "^",
}  # fmt: skip
_FUNCTIONS = {
    "TruncToInt": "int", "FloorToInt": "floor", "CeilToInt": "ceil", "ToFloat": "float", "RoundToInt": "round",
    "Max": "max", "Min": "min", "Identity": "",
}  # fmt: skip
_SYMBOL = re.compile(r"\b(?:(zuf|zf|u)|s)\d+\b")


class _PythonPrinter(StrPrinter):  # type: ignore[misc]  # sympy has no types
    """Prints the functions of torch's expressions as operators and functions of Python."""

    printmethod = "_fx_onnx"  # torch's functions print themselves through sympy's own method

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__()
        self._labels = labels

    def _print_Symbol(self, expr: Any) -> str:
        return self._labels.get(str(expr), DATA_DEPENDENT)

    def parenthesize(self, item: Any, level: int, strict: bool = False) -> str:
        """Prints an operand, in parentheses if it needs them: ``//`` and ``%`` are functions for sympy."""
        if type(item).__name__ in _OPERATORS and level >= PRECEDENCE["Mul"]:
            return f"({self._print(item)})"
        text: str = super().parenthesize(item, level, strict)
        return text

    def _print_Float(self, expr: Any) -> str:
        return repr(float(expr))

    def _print_Function(self, expr: Any) -> str:
        name = type(expr).__name__
        if name in _OPERATORS:
            left, right = (self.parenthesize(side, PRECEDENCE["Mul"], strict=False) for side in expr.args[:2])
            return f"{left} {_OPERATORS[name]} {right}"
        arguments = ", ".join(map(self._print, expr.args))
        return f"{_FUNCTIONS.get(name, name.removeprefix('OpaqueUnaryFn_'))}({arguments})"

    _print_Max = _print_Min = _print_Function

    def _print_Relational(self, expr: Any) -> str:
        left, right = map(self._print, expr.args)
        return f"{left} {expr.rel_op} {right}"

    _print_Equality = _print_Unequality = _print_Relational

    def _print_And(self, expr: Any) -> str:
        return " and ".join(sorted(map(self._print, expr.args)))

    def _print_Or(self, expr: Any) -> str:
        return " or ".join(sorted(f"({self._print(argument)})" for argument in expr.args))

    def _print_Not(self, expr: Any) -> str:
        return f"not ({self._print(expr.args[0])})"


def expression_text(expression: Any, labels: Mapping[str, str]) -> str:
    """Returns an expression or a condition as Python.

    Args:
        expression: A sympy expression over torch's symbols, with torch's functions.
        labels: The label of each symbol; a symbol without one depends on data.
    """
    return str(_PythonPrinter(labels).doprint(expression))


def simple_condition(holds: Callable[[int], bool], label: str, least: int = 2) -> str | None:
    """Returns a condition on one size in its simplest form: a bound, an interval, or a remainder.

    The forms are compared with the condition at more than 100 sizes, the smallest of which is ``least``.

    Returns:
        For example ``width % 2 == 0``; None if the condition has no such form.
    """
    sizes = [*range(least, 98), 127, 128, 129, 255, 256, 257, 511, 512, 1000, 1023, 4096, 65535, 65536]
    true = set(filter(holds, sizes))
    if not true:
        return f"{label} == 1" if holds(1) else None
    low, high, second = min(true), max(true), min(true - {1}, default=1)
    forms: list[tuple[str, Callable[[int], bool]]] = [
        (f"{label} == {low}", lambda size: size == low),
        (f"{label} >= {low}", lambda size: size >= low),
        (f"{label} <= {high}", lambda size: size <= high),
        (f"{low} <= {label} <= {high}", lambda size: low <= size <= high),
        (f"({label} == 1) or ({label} >= {second})", lambda size: size == 1 or size >= second),
        *((f"{label} % {k} == {low % k}", lambda size, k=k: size % k == low % k) for k in range(2, 33)),
    ]
    return next((text for text, holds in forms if {size for size in sizes if holds(size)} == true), None)


def sizes_in_words(low: int | None, high: int | None, least: int = 2) -> str:
    """Returns an interval of sizes in words: ``any``, ``5 or more``, ``at most 16``, ``2 to 512``.

    Args:
        low: The smallest size.
        high: The largest size. torch has large numbers where there is no bound.
        least: The smallest size that is a bound.
    """
    low = None if low is None or low < least else low
    high = None if high is None or high >= _UNBOUNDED else high
    if low is not None and high is not None:
        return f"{low} to {high}" if low != high else str(low)
    if low is not None:
        return f"{low} or more"
    return f"at most {high}" if high is not None else "any"


def shape_text(sizes: Iterable[Any]) -> str:
    """Returns a shape for a message, for example ``[2, ?]``; ``?`` is a size that is not a number."""
    return f"[{', '.join(str(size) if isinstance(size, int) else '?' for size in sizes)}]"


def without_symbols(text: str) -> str:
    """Replaces torch's names of sizes in one of its messages by words, and removes its notation for bounds."""
    text = re.sub(r"L\['(\w+)'\](\S*?)\.size\(\)\[(\d+)\]", r"\1\2.shape[\3]", text)
    text = re.sub(r"\bTruncToInt\b", "int", re.sub(r"\bToFloat\b", "float", text))
    return _SYMBOL.sub(lambda match: DATA_DEPENDENT if match[1] else "a dynamic size", text)


def with_offsets_inside(expression: Any) -> Any:
    """Writes ``(n - 1) // 8 + 1``, the size that a convolution computes, as ``(n + 7) // 8``."""

    def inside(total: Any) -> Any:
        number, terms = total.as_coeff_add()
        for term in terms:
            factor, division = term.as_coeff_Mul()
            if type(division).__name__ in ("FloorDiv", "CleanDiv") and number and number % factor == 0:
                left, right = division.args
                moved = division.func(left + number / factor * right, right, evaluate=False)
                return sympy.Add(*(other for other in terms if other is not term), factor * moved)
        return total

    return expression.replace(lambda part: part.is_Add, inside)


def without_factors(condition: Any) -> Any:
    """Cancels the sizes that both sides of an equation of products have: a condition on sizes other than 0."""
    if not isinstance(condition, sympy.Eq) or not all(side.is_Mul for side in condition.args):
        return condition
    left, right = sympy.fraction(sympy.cancel(condition.args[0] / condition.args[1]))
    return sympy.Eq(left, right)


def without_subtraction(condition: Any) -> Any:
    """Moves the subtracted terms of an inequality to the other side, and a lone number to the right side.

    A bound of one size has the form ``n >= 5`` or ``n <= 5``.
    """
    if not isinstance(condition, sympy.core.relational.Relational) or isinstance(condition, (sympy.Eq, sympy.Ne)):
        return condition
    terms = sympy.Add.make_args(condition.args[0] - condition.args[1])
    subtracted = [term for term in terms if term.could_extract_minus_sign()]
    left, right = sympy.Add(*(t for t in terms if t not in subtracted)), sympy.Add(*(-t for t in subtracted))
    moved = condition.func(left, right, evaluate=False)
    moved = moved.reversed if left.is_number else moved
    if moved.args[0].is_Symbol and moved.args[1].is_Integer:
        step = {sympy.StrictGreaterThan: (sympy.Ge, 1), sympy.StrictLessThan: (sympy.Le, -1)}.get(moved.func)
        return moved if step is None else step[0](moved.args[0], moved.args[1] + step[1], evaluate=False)
    return moved
