"""Writes the conditions on the sizes of a program in words, over the names of the dims."""

from __future__ import annotations

from collections.abc import Iterator

import sympy

from fx_onnx.capture.proof.input_sizes import InputSizes
from fx_onnx.capture.proof.size_condition import EQUATES, RAISES, Condition, weaker_conditions
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.sizes.dim_table import SizeCondition
from fx_onnx.sizes.size_text import expression_text, simple_condition, without_subtraction
from fx_onnx.sizes.trial_sizes import SIZES

__all__ = ["READABLE", "described", "message_id", "sentence"]

_LONG = 30  # the length of a condition from which on a simpler form replaces the expression of a frozen value
READABLE = 100  # the length of a condition in a sentence
_OPERATORS = (" / ", "//", "%", "max(", "min(", "*", " - ")


def described(conditions: list[Condition], sizes: InputSizes) -> Iterator[SizeCondition]:
    """Yields conditions over the names of the dims."""
    for condition in conditions:
        dims = tuple(sizes.names[symbol] for symbol in condition.symbols)
        cause = condition.cause if condition.kind == "finding" else RAISES
        witness = {sizes.names.get(symbol, str(symbol)): size for symbol, size in condition.witness}
        told = _text(condition, sizes), condition.kind, dims, cause, condition.line
        yield SizeCondition(*told, witness, condition.seen, condition.test)


def message_id(finding: Condition) -> MessageId:
    """Returns the kind of a finding: it relates dims, excludes one size, or restricts the sizes otherwise."""
    if finding.cause == EQUATES:
        return MessageId.RELATED_DIMS
    return MessageId.SIZE_CONDITION if _excluded_size(finding) is None else MessageId.EXCLUDED_SIZE


def sentence(finding: Condition, sizes: InputSizes) -> str:
    """Returns a finding as one sentence."""
    only, verb = _excluded_size(finding), "is" if finding.is_certain else "may be"
    text, cause = _text(finding, sizes), finding.cause
    where = f"correct only where {text if len(text) <= READABLE else _summary(finding, sizes)}"
    if only is not None:
        where = f"wrong where {sizes.names[finding.symbols[0]]} == {only}"
        cause = finding.cause.replace("other sizes", "this size")
    line = f" {finding.line}" if finding.line else ""
    return f"The exported model {verb} {where}, because the code {cause}{line}."


def _summary(finding: Condition, sizes: InputSizes) -> str:
    """Returns a clause that names the dims of a condition, and sizes for which it is false if some were tried."""
    names = [sizes.names[symbol] for symbol in finding.symbols]
    false = ", ".join(f"{sizes.names[symbol]}={size}" for symbol, size in finding.witness if symbol in finding.symbols)
    seen = f"is false for {false}; " if false else ""
    return f"a condition on {' and '.join(names)} holds ({seen}program.dims.conditions has it)"


def _excluded_size(condition: Condition) -> int | None:
    """Returns the one size that a condition on one dim excludes; None if it excludes others."""
    expression = condition.expression
    if len(condition.symbols) != 1 or expression.func.__name__ != "Unequality":
        return None
    excluded = [size for size in (0, 1, *SIZES[0]) if not condition.test(size)]
    return excluded[0] if len(excluded) == 1 else None


def _text(condition: Condition, sizes: InputSizes) -> str:
    """Returns a condition as Python over the names of the dims; a frozen value keeps its expression."""
    expression, symbols = without_subtraction(condition.expression), condition.symbols
    text = expression_text(expression, sizes.labels)
    if len(symbols) == 2 and any(part in text for part in _OPERATORS):
        excluded = sizes.excluded(condition)
        equal = (weaker.expression for weaker in weaker_conditions(condition) if sizes.excluded(weaker) == excluded)
        return expression_text(next(equal, expression), sizes.labels)
    is_short = condition.converts and len(text) <= _LONG
    if len(symbols) > 1 or is_short or not any(part in text for part in _OPERATORS):
        return text
    only = _excluded_size(condition)
    label = sizes.names[symbols[0]]
    least = 1 if isinstance(expression, sympy.Or) else 2  # such a condition names an exception
    return f"{label} != {only}" if only is not None else simple_condition(condition.test, label, least) or text
