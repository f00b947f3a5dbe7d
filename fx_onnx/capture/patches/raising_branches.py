"""Leaves out the exceptions that a forward raises if a condition on data holds. An ONNX model cannot raise one.

torch.export cannot decide a branch such as ``if (x < 0).any(): raise ValueError``, nor an ``assert`` about data. Within
the context, the tensors and numbers of such a condition answer as they do where nothing is raised. A wrong answer would
raise the exception, so it cannot change a result.
"""

from __future__ import annotations

import ast
import linecache
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.core import threads
from fx_onnx.core.source_lines import innermost_line
from fx_onnx.core.torch_private import free_unbacked_symbols

__all__ = ["leave_out_exceptions", "stops_at_raising_branch"]

_FILES_BETWEEN = frozenset({__file__, str(Path(__file__).with_name("patching.py")), str(threads.__file__)})
# Functions in a condition that convert no tensor to a bool, unlike `max` and `any`.
_PLAIN_FUNCTIONS = frozenset({"len", "isinstance", "hasattr", "getattr", "type", "callable"})
_HIDDEN_CONVERSIONS = (
    ast.BoolOp, ast.Not, ast.IfExp, ast.Lambda, ast.NamedExpr, ast.In, ast.NotIn, ast.comprehension, ast.Await
)  # fmt: skip


def stops_at_raising_branch(error: Exception) -> bool:
    """Returns whether torch could not decide a condition that leads to an exception only."""
    frames = traceback.extract_tb(error.__traceback__)
    is_undecided = "data-dependent" in str(error).lower()
    return is_undecided and any(_answer(frame.filename, frame.lineno or 0) is not None for frame in frames)


@contextmanager
def leave_out_exceptions() -> Iterator[dict[str, None]]:
    """Yields a dict whose keys are the places of the conditions that were left out, as ``(file:line: code)``."""
    places: dict[str, None] = {}
    with (
        replace_attribute(torch.Tensor, "__bool__", _answering(torch.Tensor.__bool__, _is_traced, places)),
        replace_attribute(torch.SymBool, "__bool__", _answering(torch.SymBool.__bool__, _depends_on_data, places)),
    ):
        yield places


def _answering(original: Callable[[Any], bool], applies: Callable[[Any], bool], places: dict[str, None]) -> Any:
    """Returns a replacement of ``__bool__``."""

    def __bool__(self: Any) -> bool:
        frame: Any = sys._getframe(1)
        while frame.f_code.co_filename in _FILES_BETWEEN:
            frame = frame.f_back
        answer = _answer(frame.f_code.co_filename, frame.f_lineno) if applies(self) else None
        if answer is None:
            return original(self)
        places[innermost_line(traceback.extract_stack(frame))] = None
        return answer

    return __bool__


def _is_traced(tensor: torch.Tensor) -> bool:
    # A plain tensor has its values, so it answers itself.
    return type(tensor) not in (torch.Tensor, torch.nn.Parameter)


def _depends_on_data(condition: torch.SymBool) -> bool:
    return bool(free_unbacked_symbols(condition))


def _answer(filename: str, line: int) -> bool | None:
    """Returns the answer with which the condition in a line raises nothing; None if there is no such condition."""
    return _answers("".join(linecache.getlines(filename))).get(line)


@lru_cache(maxsize=32)
def _answers(source: str) -> dict[int, bool]:
    """Returns the answers of the conditions in a file, by line."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a cell of a notebook may contain commands
        return {}
    answers: dict[int, bool] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            wanted = True
        elif isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise):
            wanted = False
        else:
            continue
        found = set(_of_parts(node.test, wanted))
        if len(found) == 1 and (answer := found.pop()) is not None:
            answers |= dict.fromkeys(range(node.test.lineno, (node.test.end_lineno or node.test.lineno) + 1), answer)
    return answers


def _of_parts(condition: ast.expr, wanted: bool) -> Iterator[bool | None]:
    """Yields the answer that each part of a condition must give; None for a part with other conversions to a bool."""
    match condition:
        case ast.UnaryOp(ast.Not(), operand):
            yield from _of_parts(operand, not wanted)
        case ast.Call(ast.Name("bool"), [operand]):
            yield from _of_parts(operand, wanted)
        case ast.BoolOp(values=values):
            # A flag such as `self.validate` is no tensor.
            parts = [each for each in values if not isinstance(each, (ast.Name, ast.Attribute))]
            for part in parts or values:
                yield from _of_parts(part, wanted)
        case _:
            yield wanted if all(map(_converts_nothing, ast.walk(condition))) else None


def _converts_nothing(node: ast.AST) -> bool:
    """Returns whether a part of an expression converts no tensor to a bool for another purpose than the condition."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in _PLAIN_FUNCTIONS
    return not isinstance(node, _HIDDEN_CONVERSIONS)
