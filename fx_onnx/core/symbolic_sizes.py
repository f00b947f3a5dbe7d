"""Facts about symbolic sizes that emit nothing: expressions, equality, and the shape inputs that are constants.

torch.export describes a size that is not fixed by a sympy expression over symbols (``s17``, ``2*s17``, ``u0``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import sympy
import torch

from fx_onnx.core.torch_private import symbolic_expression

Size = int | torch.SymInt
SymbolicNumber = (torch.SymInt, torch.SymFloat, torch.SymBool)
_INT, _FLOAT, _BOOL = ir.DataType.INT64, ir.DataType.DOUBLE, ir.DataType.BOOL


def expression(size: Any) -> sympy.Expr:
    """The sympy expression of a number, with what the capture learned about its symbols replaced."""
    return symbolic_expression(size) if isinstance(size, SymbolicNumber) else sympy.sympify(size)


def static(size: Any) -> Any:
    """A symbolic number that is known to be constant, as that constant; any other number as it is."""
    if isinstance(size, torch.SymInt):
        expr = symbolic_expression(size)
        return int(expr) if expr.is_Integer else size
    if isinstance(size, (torch.SymFloat, torch.SymBool)):
        expr = symbolic_expression(size)
        if expr.is_number or expr in (sympy.true, sympy.false):
            return bool(expr) if isinstance(size, torch.SymBool) else float(expr)
    return size


def is_count(size: Size) -> bool:
    """Whether a size depends on values, as the number of boxes found does: then it may be 0."""
    return any(symbol.name.startswith("u") for symbol in expression(size).free_symbols)  # torch's prefix of such


def onnx_dtype(number: Any) -> ir.DataType:
    """The dtype in which a symbolic number is computed."""
    return _BOOL if isinstance(number, torch.SymBool) else _FLOAT if isinstance(number, torch.SymFloat) else _INT


def same_size(a: Size, b: Size) -> bool:
    """Whether two sizes are known to be equal, without asking torch (which would record a guard)."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return bool(expression(a) == expression(b))


def constant_shape(old: Sequence[Size] | None, sizes: Sequence[Size]) -> list[int] | None:
    """The shape input of a Reshape as constants, with -1 and 0 for what the runtime can work out; None if it cannot.

    Only the sizes that stay in their place are 0 (copied), and one other symbolic size may be -1. A literal 0 excludes
    both: -1 cannot be worked out of an empty tensor, nor beside the count of something that there may be none of.
    """
    if all(isinstance(size, int) for size in sizes):
        return list(sizes)  # type: ignore[arg-type]
    if any(isinstance(size, int) and size == 0 for size in sizes):
        return None
    unknown = [i for i, size in enumerate(sizes) if not isinstance(size, int)]
    if len(unknown) == 1:
        return [-1 if i in unknown else size for i, size in enumerate(sizes)]  # type: ignore[misc]
    if old is None:
        return None
    copied = {i for i in unknown if i < len(old) and same_size(old[i], sizes[i])}
    if len(unknown) - len(copied) > 1 or (len(unknown) > len(copied) and any(is_count(sizes[i]) for i in copied)):
        return None
    return [0 if i in copied else -1 if i in unknown else size for i, size in enumerate(sizes)]  # type: ignore[misc]
