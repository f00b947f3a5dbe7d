"""Facts about torch's symbolic sizes: expressions, equality, and whether a size depends on data.

torch.export describes a size that is not fixed by a sympy expression over symbols, such as ``s17`` or ``2*s17``. The
functions of this file never make torch record a guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import onnx_ir as ir
import sympy
import torch

from fx_onnx.sizes.size_rules import constant_reshape
from fx_onnx.torch_internals import torch_private
from fx_onnx.torch_internals.guard_private import empty_sizes
from fx_onnx.torch_internals.torch_private import symbolic_expression

Size = int | torch.SymInt
SizeExpression: TypeAlias = "int | sympy.Expr"
"""A size in a form that compares equal for equal sizes: a number, or the expression of a symbolic one."""
SymbolicNumber = (torch.SymInt, torch.SymFloat, torch.SymBool)
_INT, _FLOAT, _BOOL = ir.DataType.INT64, ir.DataType.DOUBLE, ir.DataType.BOOL


def expression(number: Any) -> sympy.Expr:
    """Returns the sympy expression of a number, after the replacements that the capture found for its symbols."""
    return symbolic_expression(number) if isinstance(number, SymbolicNumber) else sympy.sympify(number)


def size_of(number: Size) -> SizeExpression:
    """Returns a plain or a symbolic size in the form that compares equal for equal sizes."""
    if isinstance(number, int):
        return number
    size = expression(number)
    return int(size) if size.is_Integer else size


def static(number: Any) -> Any:
    """Returns a symbolic number that is constant as that constant, and any other number as it is."""
    if type(number) is int:  # nearly always
        return number
    if isinstance(number, torch.SymInt):
        expr = symbolic_expression(number)
        return int(expr) if expr.is_Integer else number
    if isinstance(number, (torch.SymFloat, torch.SymBool)):
        expr = symbolic_expression(number)
        if expr.is_number or expr in (sympy.true, sympy.false):
            return bool(expr) if isinstance(number, torch.SymBool) else float(expr)
    return number


def is_data_dependent(expr: sympy.Basic) -> bool:
    """Returns whether an expression contains a size that depends on values, such as the length of a ``nonzero``.

    Such a size may be 0, whereas torch.export assumes that the size of an input is not 0.
    """
    return bool(torch_private.free_unbacked_symbols(expr))


def is_from_data(size: Size) -> bool:
    """Returns whether a size of a tensor depends on data, so that it may be 0."""
    return not isinstance(size, int) and is_data_dependent(expression(size))


def may_be_empty(size: Size) -> bool:
    """Returns whether a size may be 0 where no input is empty: it depends on data, or the capture found it so."""
    if isinstance(size, int):
        return size == 0
    known = expression(size)
    return known == 0 or is_data_dependent(known) or known in empty_sizes(size.node.shape_env)


def is_written_as_negative(size: Size) -> bool:
    """Returns whether the expression of a size is negative where the inputs are empty.

    The size of ``x[1:]`` is ``n - 1``, because torch.export assumes that n is not 0.
    """
    if isinstance(size, int):
        return False
    known = expression(size)
    try:
        return bool(known.xreplace(dict.fromkeys(known.free_symbols, sympy.Integer(0))).is_negative)
    except ZeroDivisionError:
        return False


def number_dtype(number: Any) -> ir.DataType:
    """Returns the ONNX dtype in which a symbolic number is computed: BOOL, DOUBLE or INT64."""
    return _BOOL if isinstance(number, torch.SymBool) else _FLOAT if isinstance(number, torch.SymFloat) else _INT


def same_size(a: Size, b: Size) -> bool:
    """Returns whether two sizes are known to be equal."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return bool(expression(a) == expression(b))


def same_where_static(actual: Sequence[Size | None], expected: Sequence[Size]) -> bool:
    """Returns whether two shapes have the same rank, and the same size wherever both sizes are static.

    None is a size that is not known. The shape ``(0,)`` expects any shape of rank 1, because torch's fake kernels
    return it for results that are not asked for, such as the counts of unique_consecutive.
    """
    if len(actual) != len(expected):
        return False
    if len(expected) == 1 and isinstance(expected[0], int) and expected[0] == 0:
        return True
    for a, b in zip(actual, expected, strict=True):
        if a is not b and (isinstance(a, int) or isinstance(b, int)):
            a, b = static(a), static(b)
            if isinstance(a, int) and isinstance(b, int) and a != b:
                return False
    return True


def constant_shape(old: Sequence[Size] | None, new: Sequence[Size]) -> list[int] | None:
    """Returns the constant shape input of a Reshape from ``old`` to ``new``; None if no constant expresses it."""
    return constant_reshape(None if old is None else _opaque(old), _opaque(new), is_data_dependent)


def _opaque(sizes: Sequence[Size]) -> list[int | sympy.Expr]:
    return [size if isinstance(size, int) else expression(size) for size in sizes]
