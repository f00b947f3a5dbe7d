"""Makes the table of dynamic dims from what the capture found about each of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sympy
from torch.export import ExportedProgram

from fx_onnx.capture.dynamic_dims import CapturedInput, SpecializedDim
from fx_onnx.capture.size_constraints import SizeConstraint
from fx_onnx.capture.small_sizes import ExcludedSize
from fx_onnx.core.dim_table import DimSummary, DimTable
from fx_onnx.core.size_text import expression_text, sizes_in_words

__all__ = ["dim_table"]


def dim_table(
    program: ExportedProgram,
    inputs: Sequence[CapturedInput],
    names: Mapping[str, str],
    labels: Mapping[str, str],
    specialized: Iterable[SpecializedDim],
    constraints: Sequence[SizeConstraint],
    excluded: Sequence[ExcludedSize],
    works: Callable[[sympy.Symbol, int], bool],
) -> DimTable:
    """Returns the dynamic dims of the inputs, then the requested dims that are static.

    Args:
        program: The captured program.
        inputs: The tensors among its inputs.
        names: The user's names by expression.
        labels: A label for each symbol.
        specialized: The requested dims that are static.
        constraints: The conditions on which the program relies.
        excluded: The sizes 0 and 1 for which it is wrong.
        works: Returns whether the program is right for one size of one dim.
    """
    places: dict[Any, list[str]] = {}
    for each in inputs:
        for axis in range(each.value.ndim):
            if not isinstance(dim := each.dim(axis), int):
                places.setdefault(dim, []).append(f"{each.name}.shape[{axis}]")
    found = [
        DimSummary(
            names.get(str(dim), where[0]), tuple(where), *_sizes(dim, program, labels, constraints, excluded, works)
        )
        for dim, where in places.items()
    ]
    static = [
        DimSummary(each.name or place, (place,), f"fixed at {each.size}", each.place)
        for each in specialized
        for place in (f"{each.input}.shape[{each.axis}]",)
    ]
    return DimTable([*found, *static])


def _sizes(
    dim: Any,
    program: ExportedProgram,
    labels: Mapping[str, str],
    constraints: Sequence[SizeConstraint],
    excluded: Sequence[ExcludedSize],
    works: Callable[[sympy.Symbol, int], bool],
) -> tuple[str, str]:
    """Returns the sizes of a dim in words, and the line that restricts them."""
    if not isinstance(dim, sympy.Symbol):
        return f"equal to {expression_text(dim, labels)}", ""
    own = [each for each in constraints if dim in each.expression.free_symbols]
    wrong = [each for each in excluded if each.dim == dim]
    span = program.range_constraints.get(dim)
    is_bound = re.compile(rf"{re.escape(labels.get(str(dim), ''))} (?:>=|<=|<|>) \d+")
    lower = _number(span, "lower")
    if lower is not None and not any(is_bound.fullmatch(each.condition) for each in own):
        lower = _smallest(lower, dim, own, works)
    words = sizes_in_words(lower, _number(span, "upper"))
    parts = [] if words == "any" else [words]
    parts += [_in_words(each.condition) for each in own if not (parts and is_bound.fullmatch(each.condition))]
    # Several lines may exclude one size, and the words for a larger lower bound exclude it too.
    is_said = lower is not None and lower > 2
    parts += dict.fromkeys(f"not {each.size}" for each in wrong if not is_said)
    restrictions: list[SizeConstraint | ExcludedSize] = [*own, *wrong]
    place = next((each.place.strip() for each in restrictions if each.place), "")
    return ", ".join(parts) or "any", place


def _smallest(
    lower: int, dim: sympy.Symbol, own: Sequence[SizeConstraint], works: Callable[[sympy.Symbol, int], bool]
) -> int:
    """Returns the smallest size for which the program is right, given the lower bound of torch.

    torch adds bounds where it reasons about strides, and where it assumes that a part of a dim is not 1. So the program
    is tried at the smallest size that fulfils the constraints, and at the largest one below the bound.
    """
    smaller = [n for n in range(2, lower) if not any(each.excludes({dim: sympy.Integer(n)}) for each in own)]
    return next((size for size in dict.fromkeys([*smaller[:1], *smaller[-1:]]) if works(dim, size)), lower)


def _number(span: Any, side: str) -> int | None:
    bound = getattr(span, side, None)
    return int(bound) if bound is not None and getattr(bound, "is_Integer", False) else None


def _in_words(condition: str) -> str:
    """Returns a condition such as ``width % 2 == 0`` in words."""
    if (found := re.fullmatch(r"\S+ % (\d+) == 0", condition)) is not None:
        return "even" if found[1] == "2" else f"a multiple of {found[1]}"
    return f"where {condition}"
