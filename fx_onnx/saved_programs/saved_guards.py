"""Gives a program from a file the guards that the file keeps as Python code.

A program that torch captured in this process has its guards as expressions over symbols, with the lines that made them.
torch.export.save writes them as code, such as ``L['x'].size()[0] % 2 == 0``, and torch.export.load keeps the code.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.sizes.symbolic_sizes import expression
from fx_onnx.torch_internals.guard_private import (
    integer_functions,
    python_of_guards,
    set_guards,
)

__all__ = ["restore_guards"]

_RELATIONS: Mapping[type, Callable[..., Any]] = {
    ast.Eq: sympy.Eq, ast.NotEq: sympy.Ne, ast.Lt: sympy.Lt, ast.LtE: sympy.Le, ast.Gt: sympy.Gt, ast.GtE: sympy.Ge,
}  # fmt: skip
_OPERATORS: Mapping[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.USub: operator.neg,
    ast.Not: sympy.Not, ast.And: sympy.And, ast.Or: sympy.Or,
}  # fmt: skip


@cache
def _functions() -> Mapping[Any, Callable[..., Any]]:
    return {**_OPERATORS, **integer_functions()}


def restore_guards(program: ExportedProgram, shape_env: Any) -> None:
    """Makes the guards of a program from a file those of its symbols; warns of each that it cannot read."""
    values = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    sizes, guards = _sizes_by_source(values), []
    for code in python_of_guards(program):
        try:
            guards.append(_expression(ast.parse(code, mode="eval").body, sizes))
        except (LookupError, SyntaxError, TypeError, ValueError):
            warn(
                f"The exported model may be correct only where {code}, which the file requires.",
                MessageId.SIZE_CONDITION,
            )
    set_guards(shape_env, [guard for guard in guards if guard not in (sympy.true, sympy.false)])


def _sizes_by_source(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the size of each axis of the inputs, and each integer input, by the text of ``_source``."""
    sizes: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            sizes |= {f"{_word(name)}.size()[{axis}]": expression(size) for axis, size in enumerate(value.shape)}
        elif isinstance(value, torch.SymInt):
            sizes[_word(name)] = expression(value)
    return sizes


def _source(node: ast.AST) -> str:
    """Returns ``past_0_key.size()[2]`` for ``L['past'][0].key.size()[2]``, as torch names the node of an input."""
    path, size, axis = ast.unparse(node).partition(".size()")
    return f"{_word(path.removeprefix('L'))}{size}{axis}"


def _word(text: str) -> str:
    return re.sub(r"[\W_]+", "_", text).strip("_").lower()


def _expression(node: Any, sizes: Mapping[str, Any]) -> Any:
    """Returns the expression of a node of Python's syntax; a LookupError for what no guard of sizes contains."""
    functions = _functions()
    match node:
        case ast.Subscript() | ast.Attribute():
            return sizes[_source(node)]
        case ast.Constant(value=int() | float()):
            return sympy.sympify(node.value)
        case ast.UnaryOp():
            return functions[type(node.op)](_expression(node.operand, sizes))
        case ast.BinOp():
            return functions[type(node.op)](_expression(node.left, sizes), _expression(node.right, sizes))
        case ast.BoolOp():
            return functions[type(node.op)](*(_expression(value, sizes) for value in node.values))
        case ast.Compare(ops=[relation], comparators=[right]):
            return _RELATIONS[type(relation)](_expression(node.left, sizes), _expression(right, sizes))
        case ast.Call(func=ast.Name(id=name)):
            return functions[name](*(_expression(argument, sizes) for argument in node.args))
    raise LookupError(ast.unparse(node))
