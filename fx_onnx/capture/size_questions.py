"""Finds lines of a forward that ask whether a size is an int, or compute with its text, which only Python answers.

While torch traces in non-strict mode, a dynamic size is a symbol of a class of its own, whose text is a name. The
source tells where a forward asks about a size, or a function or a method of the model that gets the size from it.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Set
from types import FunctionType
from typing import Any

import torch
from torch.export import ExportedProgram

from fx_onnx.messages.source_lines import is_library, line_text, syntax_tree

__all__ = ["size_questions"]

_NUMBERS = re.compile(r"^(?!.*Sym).*\b(int|float|bool|Number|Integral|Real)\b")
_READERS = frozenset({"len", "int", "float", "hash", "get", "pop", "index", "find", "startswith", "endswith"})


def size_questions(model: torch.nn.Module | ExportedProgram) -> Iterator[str]:
    """Yields one sentence for each line of a module's forward that asks for the type or the text of a size.

    A program that the user has captured has no code.
    """
    kinds: Iterable[Any] = map(type, model.modules() if isinstance(model, torch.nn.Module) else ())
    lines: dict[str, None] = {}
    for kind in dict.fromkeys(kinds):
        forward = inspect.getattr_static(kind, "forward", None)  # a TorchScript module has no function of Python
        names = getattr(getattr(forward, "__code__", None), "co_names", ())
        if not is_library(kind.__module__) and not {"shape", "size"}.isdisjoint(names):
            lines |= dict.fromkeys(_lines(forward, kind, frozenset(), set()))
    for line in lines:
        yield (
            "The exported model may be wrong, because the code asks for the type or the text of a size, which is no "
            f"int while torch traces {line}."
        )


def _lines(function: Any, kind: type, parameters: Set[str], seen: set[Any]) -> Iterator[str]:
    """Yields the lines of a function that ask about a size, and those of the functions that it gives a size.

    Args:
        function: The function.
        kind: The class of the module, which has the methods that are called.
        parameters: The names of the parameters that are sizes.
        seen: The functions and parameters that were read.
    """
    function = inspect.unwrap(function)
    tree = syntax_tree(function)
    if tree is None or (function, parameters) in seen:
        return
    seen.add((function, parameters))
    sizes = _Sizes(parameters)
    nodes = [*ast.walk(tree)]
    for node in nodes:
        if isinstance(node, ast.Assign):
            sizes.assign(node)
    asked = (node for node in nodes if isinstance(node, (ast.expr, ast.Match)) and sizes.are_asked(node))
    for number in sorted({node.lineno for node in asked}):
        yield line_text(function.__code__.co_filename, number)
    for node in nodes:
        if isinstance(node, ast.Call) and (given := sizes.arguments(node)):
            called = _called(node.func, function, kind)
            if isinstance(called, FunctionType) and not is_library(called.__module__):
                code, first_place = called.__code__, int(isinstance(node.func, ast.Attribute))  # after self
                names = dict(enumerate(code.co_varnames[first_place : code.co_argcount]))
                yield from _lines(called, kind, frozenset(names.get(each, each) for each in given), seen)


def _called(node: ast.expr, function: Any, kind: type) -> Any:
    """Returns the function of a call: a global function, or a method of the module; None for all others."""
    match node:
        case ast.Name(name):
            return function.__globals__.get(name)
        case ast.Attribute(ast.Name("self"), name):
            return inspect.getattr_static(kind, name, None)
    return None


class _Sizes:
    """The names of a function that are sizes, and those that are texts of sizes."""

    def __init__(self, sizes: Iterable[str]) -> None:
        self._sizes, self._texts = set(sizes), set[str]()

    def arguments(self, call: ast.Call) -> list[Any]:
        """Returns the places and the names of the arguments of a call that are sizes."""
        places = [place for place, each in enumerate(call.args) if self._is_size(each)]
        return [*places, *(each.arg for each in call.keywords if each.arg and self._is_size(each.value))]

    def assign(self, node: ast.Assign) -> None:
        """Adds the names that a statement gives to a size or its text."""
        names = {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        is_unpacked = isinstance(node.targets[0], ast.Tuple) and _is_shape(node.value)
        if is_unpacked or self._is_size(node.value):
            self._sizes |= names
        elif self._is_text(node.value):
            self._texts |= names

    def are_asked(self, node: ast.AST) -> Any:
        """Returns whether a node asks for the type of a size, or computes with its text."""
        match node:
            case ast.Call(ast.Name("isinstance"), [size, kind]):
                return self._is_size(size) and _NUMBERS.search(ast.unparse(kind))
            case ast.Compare(ast.Call(ast.Name("type"), [size])):
                return self._is_size(size)
            case ast.Match(subject, cases):
                return self._is_size(subject) and any(isinstance(each.pattern, ast.MatchClass) for each in cases)
            case ast.Call(ast.Name(name) | ast.Attribute(attr=name), arguments):
                return name in _READERS and any(map(self._is_text, arguments))
            case ast.Subscript(slice=key):
                return self._is_text(key)
            case ast.Compare(left, _, others):
                return any(map(self._is_text, (left, *others)))
        return False

    def _is_size(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(name):
                return name in self._sizes
            case ast.Subscript(value, ast.Constant() | ast.UnaryOp()):
                return _is_shape(value)
            case ast.Call(ast.Attribute(attr="size"), [_]):
                return True
            case ast.BinOp(left, _, right):
                return self._is_size(left) or self._is_size(right)
        return False

    def _is_text(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(name):
                return name in self._texts
            case ast.Call(ast.Name("str" | "repr" | "format"), [value, *_]):
                return self._is_size(value) or _is_shape(value)
            case ast.JoinedStr(values):
                return any(self._is_text(each) for each in values)
            case ast.FormattedValue(value):
                return self._is_size(value) or _is_shape(value)
        return False


def _is_shape(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "shape"
