"""Reads in Python's source code which conditions only lead to an exception, and which lines may catch one."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from types import CodeType
from typing import NamedTuple

import torch

__all__ = ["answer_of", "is_caught"]

# Functions in a condition that convert no tensor to a bool, unlike `max` and `any`.
_PLAIN_FUNCTIONS = frozenset({"len", "isinstance", "hasattr", "getattr", "type", "callable"})
_TESTS = frozenset({"isinstance", "issubclass", "hasattr", "callable"})  # which return a bool
_HIDDEN_CONVERSIONS = (
    ast.BoolOp, ast.Not, ast.IfExp, ast.Lambda, ast.NamedExpr, ast.In, ast.NotIn, ast.comprehension, ast.Await
)  # fmt: skip

# Statements in a body that may leave it in another way than by the exception at its end.
_OTHER_ENDS = (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Try, ast.TryStar, ast.With)
# Iteration and the access to attributes end with these exceptions, which Python catches.
_SIGNALS = frozenset({"StopIteration", "StopAsyncIteration", "GeneratorExit", "IndexError", "AttributeError"})

_Place = tuple[int, int]  # a line and a column
_Span = tuple[_Place, _Place]


class _Check(NamedTuple):
    """A statement that raises an exception, its condition, and what the parts of this answer if nothing is raised."""

    statement: _Span
    condition: _Span
    answer: bool


class _Source(NamedTuple):
    """The checks of a file, and the lines whose exceptions the same function may catch."""

    checks: tuple[_Check, ...]
    caught: frozenset[int]


def answer_of(code: CodeType, instruction: int) -> bool | None:
    """Returns what a tensor must answer to an instruction that converts it to a bool, so that nothing is raised.

    Returns None if the conversion is not a part of a condition that only leads to an exception, or if the parts of the
    condition need different answers.

    Args:
        code: The code of the frame.
        instruction: The offset of the instruction in it, ``f_lasti`` of the frame.
    """
    first, last, column, last_column = next(islice(code.co_positions(), instruction // 2, None))
    if first is None or last is None or column is None or last_column is None:
        return None
    start, end = (first, column), (last, last_column)
    for statement, condition, answer in _source(code.co_filename).checks:
        # In Python 3.11, the jump at the end of a condition has the span of the statement.
        if (condition[0] <= start and end <= condition[1]) or (start, end) == statement:
            return answer
    return None


def is_caught(code: CodeType, line: int) -> bool:
    """Returns whether the function itself may catch an exception of a line.

    A context manager may do so too, except those of torch.
    """
    return line in _source(code.co_filename).caught


def _source(filename: str) -> _Source:
    return _parsed("".join(linecache.getlines(filename)))


@lru_cache(maxsize=128)
def _parsed(text: str) -> _Source:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # a cell of a notebook may contain commands
        return _Source((), frozenset())
    checks: list[_Check] = []
    caught: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            checks += _check(node, True)
        elif isinstance(node, ast.If) and _only_raises(node.body):
            checks += _check(node, False)
        elif isinstance(node, (ast.Try, ast.TryStar, ast.With)) and _catches(node):
            caught.update(range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1))
    return _Source(tuple(checks), frozenset(caught))


def _check(statement: ast.If | ast.Assert, wanted: bool) -> Iterator[_Check]:
    answers = set(_answers(statement.test, wanted))
    answer = answers.pop() if len(answers) == 1 else None
    if answer is not None:
        yield _Check(_span(statement), _span(statement.test), answer)


def _span(node: ast.stmt | ast.expr) -> _Span:
    return (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)


def _only_raises(body: Sequence[ast.stmt]) -> bool:
    """Returns whether a body always raises an exception, of a type that Python itself does not catch."""
    raised, parts = body[-1], [part for statement in body for part in ast.walk(statement)]
    if not isinstance(raised, ast.Raise) or any(isinstance(part, _OTHER_ENDS) for part in parts):
        return False
    kind = raised.exc.func if isinstance(raised.exc, ast.Call) else raised.exc
    return isinstance(kind, (ast.Name, ast.Attribute)) and ast.unparse(kind).rpartition(".")[2] not in _SIGNALS


def _answers(condition: ast.expr, wanted: bool) -> Iterator[bool | None]:
    """Yields the answer that each part of a condition must give; None for a part with other conversions to a bool."""
    match condition:
        case ast.UnaryOp(ast.Not(), operand):
            yield from _answers(operand, not wanted)
        case ast.Call(ast.Name("bool"), [operand]):
            yield from _answers(operand, wanted)
        case ast.BoolOp(values=values):
            # A call may have an effect, and the other parts skip it.
            parts = [each for each in values if not _is_flag(each)]
            for part in parts or values:
                yield from _answers(part, wanted) if all(map(_has_no_effect, ast.walk(part))) else [None]
        case _:
            yield wanted if all(map(_converts_nothing, ast.walk(condition))) else None


def _is_flag(condition: ast.expr) -> bool:
    """Returns whether a part of a condition is no tensor, as `self.validate` and `not self.training` are none."""
    match condition:
        case ast.UnaryOp(ast.Not(), operand):
            return _is_flag(operand)
        case ast.BoolOp(values=values):
            return all(map(_is_flag, values))
        case ast.Compare(left, operators, others):
            are_identities = all(isinstance(each, (ast.Is, ast.IsNot)) for each in operators)
            return are_identities or any(map(_is_text, (left, *others)))
        case ast.Call(ast.Name(name)):
            return name in _TESTS
    return isinstance(condition, (ast.Name, ast.Attribute, ast.Constant))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _converts_nothing(node: ast.AST) -> bool:
    """Returns whether a part of an expression converts no tensor to a bool for another purpose than the condition."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in _PLAIN_FUNCTIONS
    return not isinstance(node, _HIDDEN_CONVERSIONS)


def _has_no_effect(node: ast.AST) -> bool:
    """Returns whether a part of an expression calls functions of torch, of tensors and of Python only."""
    if not isinstance(node, ast.Call):
        return True
    if isinstance(node.func, ast.Attribute):
        name = node.func.attr
        return not name.endswith("_") and (hasattr(torch.Tensor, name) or hasattr(torch, name))
    return isinstance(node.func, ast.Name) and node.func.id in _PLAIN_FUNCTIONS | {"bool"}


def _catches(node: ast.Try | ast.TryStar | ast.With) -> bool:
    """Returns whether a statement may end an exception of its body; `finally` does so with a return, for example."""
    if isinstance(node, ast.With):
        return not all(ast.unparse(item.context_expr).startswith("torch.") for item in node.items)
    leaves = (ast.Return, ast.Break, ast.Continue)
    return bool(node.handlers) or any(isinstance(each, leaves) for part in node.finalbody for each in ast.walk(part))
