"""The sizes for which every index that is computed from sizes lies inside its table, such as a table of positions.

torch records no guard for an index, because it is a value of a tensor. The largest value of ``arange(n)`` is ``n - 1``
all the same, so a table of 512 rows makes ``n <= 512`` a bound: for other sizes the model raises an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from fx_onnx.capture.proof.size_condition import Condition
from fx_onnx.onnx_model.metadata import call_line
from fx_onnx.sizes.symbolic_sizes import expression
from fx_onnx.torch_internals.operators import aten

__all__ = ["index_bounds"]

Range = tuple[sympy.Expr, sympy.Expr]
"""The smallest and the largest value that a tensor can have."""

_SAME_VALUES = {
    "alias", "clone", "contiguous", "detach", "expand", "flip", "lift_fresh_copy", "permute", "repeat", "reshape",
    "roll", "select", "slice", "squeeze", "to", "transpose", "type_as", "unsqueeze", "view",
}  # fmt: skip
_FILLED: dict[str, Any] = {"ones": 1, "ones_like": 1, "new_ones": 1, "zeros": 0, "zeros_like": 0, "new_zeros": 0}
_DTYPES = {
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64,
}  # fmt: skip
"""The dtypes that hold the positions of a sequence exactly."""
_MASKS = {torch.bool, torch.uint8}
_LOOKUPS = frozenset({
    "gather", "index_add", "index_copy", "index_fill", "index_select", "scatter", "scatter_add", "scatter_reduce",
})  # fmt: skip
"""Operators that take a tensor, an axis of it, and indices into this axis."""
_SELECTS = {aten.select.int, aten.select_copy.int, aten.select_scatter.default}
"""Operators whose last arguments are an axis and a number, the index into it."""
_CHECKED = _SELECTS - {aten.select_scatter.default}
_INDEXINGS = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
_TABLES = ("embedding", "embedding_bag")
_FLAT = ("take", "put")
"""Operators whose indices are places among all elements of a tensor."""
_FROM_BOTH_ENDS = {*_SELECTS, *_INDEXINGS, aten.take.default, aten.put.default}
"""Operators for which a negative index counts from the end; the others refuse it."""
_FORMULAS_OF_ONE: dict[str, Callable[[Range], Range]] = {
    "abs": lambda a: (sympy.Max(0, a[0], -a[1]), sympy.Max(-a[0], a[1])),
    "neg": lambda a: (-a[1], -a[0]),
}
_FORMULAS: dict[str, Callable[[Range, Range], Range | None]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "clamp": lambda a, b: (sympy.Max(a[0], b[0]), sympy.Max(a[1], b[1])),
    "clamp_min": lambda a, b: (sympy.Max(a[0], b[0]), sympy.Max(a[1], b[1])),
    "rsub": lambda a, b: (b[0] - a[1], b[1] - a[0]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": lambda a, b: (a[0] * b[0], a[1] * b[1]) if a[0].is_nonnegative and b[0].is_nonnegative else None,
}


def index_bounds(program: ExportedProgram) -> Iterator[tuple[Condition, bool]]:
    """Yields the conditions under which indices are inside of tables, and whether the table has a static size.

    An index is a number, which tensors without values check too, or a tensor.
    """
    known: dict[torch.fx.Node, Range] = {}
    for node in program.graph.nodes:
        values = _range(node, known)
        if values is not None and all(bound.is_integer for bound in values):  # a fraction is rounded later
            known[node] = values
        for rows, index in _lookups(node):
            values = known.get(index) or _scalar(index)
            if values is not None and not _is_mask(index):
                low, high = values
                is_static = bool(rows.is_number)
                first = -rows if node.target in _FROM_BOTH_ENDS else 0
                bounds = [sympy.Le(high + 1, rows), sympy.Ge(low, first)]
                if not is_static and low != 0:  # no index is outside of an empty table if there is no index
                    bounds = [sympy.Or(bound, sympy.Lt(high, low)) for bound in bounds]
                for bound in (bound for bound in bounds if bound.free_symbols):
                    line, is_checked = call_line(node).strip(), node.target in _CHECKED
                    yield Condition(bound, raises=True, line=line, is_checked=is_checked), is_static


def _lookups(node: Any) -> Iterator[tuple[sympy.Expr, Any]]:
    """Yields the number of rows of each table that a node reads with an index, and the index."""
    reads: list[tuple[Any, Any, Any]] = []  # the tables, the axes and the indices
    if _packet(node) in _TABLES:
        reads = [(node.args[0], 0, node.args[1])]
    elif _packet(node) in _LOOKUPS:
        reads = [(node.args[0], node.args[1], node.args[2])]
    elif node.target in _SELECTS:
        reads = [(node.args[0], node.args[-2], node.args[-1])]
    elif node.target in _INDEXINGS:
        reads = [(node.args[0], axis, index) for axis, index in enumerate(node.args[1]) if index is not None]
    elif _packet(node) in _FLAT:
        yield sympy.prod(map(expression, node.args[0].meta["val"].shape)), node.args[1]
    elif node.target is aten.one_hot.default:
        yield _scalar(node.args[1])[0], node.args[0]  # type: ignore[index]
    for table, axis, index in reads:
        shape = table.meta["val"].shape
        yield expression(shape[axis] if shape else 1), index


def _is_mask(index: Any) -> bool:
    """Returns whether an index tells which rows are read, and not where they are."""
    return isinstance(index, torch.fx.Node) and getattr(index.meta["val"], "dtype", None) in _MASKS


def _range(node: torch.fx.Node, known: dict[torch.fx.Node, Range]) -> Range | None:
    value, kind = node.meta.get("val"), _packet(node)
    if not isinstance(value, torch.Tensor) or value.dtype not in _DTYPES:
        return None
    if value.dtype is torch.bool:
        return sympy.Integer(0), sympy.Integer(1)
    if kind in _FILLED:
        return _scalar(_FILLED[kind])
    if kind == "arange":
        return _range_of_arange(*node.args)
    operands = [known.get(argument) if isinstance(argument, torch.fx.Node) else None for argument in node.args[:2]]
    if kind in _SAME_VALUES:
        return operands[0]
    if kind == "cumsum" and operands[0] is not None and operands[0][0].is_nonnegative:
        size = node.args[0].meta["val"].shape[node.args[1]]  # type: ignore[union-attr]
        return operands[0][0], operands[0][1] * expression(size)
    return _range_of_formula(kind, node, operands)


def _range_of_formula(kind: str, node: torch.fx.Node, operands: list[Range | None]) -> Range | None:
    """Returns the range of a formula of one or two operands, which may be numbers."""
    if kind in _FORMULAS_OF_ONE and operands[0] is not None:
        return _FORMULAS_OF_ONE[kind](operands[0])
    if kind not in _FORMULAS or node.kwargs.get("alpha", 1) != 1 or len(node.args) != 2:
        return None
    first, second = (operand or _scalar(argument) for operand, argument in zip(operands, node.args, strict=True))
    return None if first is None or second is None else _FORMULAS[kind](first, second)


def _range_of_arange(*args: Any) -> Range | None:
    """Returns the range of ``arange(end)``, ``arange(start, end)``, or with a step of 1 or -1."""
    start, end, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
    first, last = _scalar(start), _scalar(end)
    if first is None or last is None or step not in (1, -1):
        return None
    return (first[0], last[1] - 1) if step == 1 else (last[1] + 1, first[0])


def _packet(node: torch.fx.Node) -> str:
    """Returns the name of an operator of ATen without its overload; empty for another node."""
    return str(getattr(node.target, "overloadpacket", "")).removeprefix("aten.")


def _scalar(argument: Any) -> Range | None:
    """Returns the range of a number; None for a tensor, or for a node whose value is unknown."""
    value = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else argument
    return None if value is None or isinstance(value, torch.Tensor) else (expression(value), expression(value))
