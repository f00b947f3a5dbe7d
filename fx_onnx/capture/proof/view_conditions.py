"""Yields for which sizes a call returns a view where a write shows that it is none, or a copy where it is a view.

``reshape`` and ``contiguous`` return a view if the strides of their argument allow one. The captured program keeps what
they returned for the example; a write goes into the viewed tensor too, and not into a copied one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch

from fx_onnx.capture.proof.size_condition import WRITES, Condition
from fx_onnx.onnx_model.metadata import call_line
from fx_onnx.sizes.symbolic_sizes import expression, is_data_dependent
from fx_onnx.torch_internals.operators import aten

__all__ = ["view_conditions"]

_MANY = 8  # the number of equations from which on each of them is a condition of its own


def view_conditions(copies: Mapping[torch.fx.Node, bool]) -> Iterator[Condition]:
    """Yields conditions under which calls return a view, or a copy, as in the captured program.

    Args:
        copies: Which calls return a view or a copy, and whether it is a view in the program.
    """
    for node, is_view in copies.items():
        argument: Any = node.args[0]
        tensor, result = argument.meta["val"], node.meta["val"]
        is_contiguous = node.target is aten.contiguous.default
        allowed = _is_contiguous(tensor, node.kwargs) if is_contiguous else _has_view(tensor, result)
        equations = allowed.atoms(sympy.Eq)
        if any(map(is_data_dependent, equations)):
            continue
        parts = _parts(allowed if is_view else sympy.Not(allowed)) if len(equations) < _MANY else equations
        line = call_line(node).strip()
        yield from (Condition(part, cause=WRITES, line=line) for part in parts if part.free_symbols)


def _parts(condition: Any) -> list[Any]:
    """Returns the parts of a conjunction, without those that follow from another one."""
    parts = {part: set(sympy.Or.make_args(part)) for part in sympy.And.make_args(sympy.to_cnf(condition))}
    return [part for part, terms in parts.items() if not any(other < terms for other in parts.values())]


def _is_contiguous(tensor: torch.Tensor, options: Mapping[str, Any]) -> Any:
    """Returns whether a tensor has the strides of a memory format."""
    axes = [*range(tensor.ndim)]
    if options.get("memory_format") in (torch.channels_last, torch.channels_last_3d):
        axes = [0, *range(2, tensor.ndim), 1]
    shape, strides = _numbers(tensor.shape), _numbers(tensor.stride())
    conditions, inner = [], sympy.Integer(1)
    for axis in reversed(axes):
        conditions.append(_equals(shape[axis], 1) | _equals(strides[axis], inner))
        inner *= shape[axis]
    return sympy.And(*conditions)


def _has_view(tensor: torch.Tensor, result: torch.Tensor) -> Any:
    """Returns whether a tensor has a view of another shape.

    Neighboring axes that do not lie in one piece of memory must remain apart in it. Axes of size 1 do not count.
    """
    axes = [axis for axis, size in enumerate(tensor.shape) if not (isinstance(size, int) and size == 1)]
    shape, strides = ([_numbers(values)[axis] for axis in axes] for values in (tensor.shape, tensor.stride()))
    after = _numbers(result.shape)
    ends = list(itertools.accumulate(reversed(after), lambda one, other: one * other))
    conditions, inner = [], sympy.Integer(1)
    for axis in range(len(shape) - 1, 0, -1):
        inner *= shape[axis]
        is_one_piece = _equals(strides[axis - 1], strides[axis] * shape[axis])
        remains = [_equals(inner, end) for end in ends]
        conditions.append(sympy.Or(_equals(shape[axis - 1], 1), _equals(inner, 1), is_one_piece, *remains))
    return sympy.And(*conditions)


def _equals(one: Any, other: Any) -> Any:
    """Returns that two numbers are equal, of which a product of sizes is 1 only if all of them are 1."""
    if 0 in (one, other):  # the stride of an expanded axis
        return sympy.sympify(one == other)
    sides = sorted(sympy.fraction(sympy.cancel(one / other)), key=lambda side: side == 1)
    if sides[1] == 1:
        return sympy.And(*(sympy.Eq(factor, 1) for factor in sympy.Mul.make_args(sides[0])))
    return sympy.Eq(*sides)


def _numbers(numbers: Sequence[Any]) -> list[Any]:
    return [expression(number) for number in numbers]
