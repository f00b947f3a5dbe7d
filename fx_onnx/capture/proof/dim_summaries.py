"""Makes the table of dynamic dims from what the capture found about each of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sympy

from fx_onnx.capture.dynamic_dims import SpecializedDim
from fx_onnx.capture.proof.dim_relations import DimRelation
from fx_onnx.capture.proof.size_proof import SizeProof
from fx_onnx.capture.proof.size_words import READABLE, described
from fx_onnx.sizes.dim_table import DimSummary, DimTable, SizeCondition
from fx_onnx.sizes.size_text import expression_text, sizes_in_words

__all__ = ["dim_table"]


def dim_table(
    facts: SizeProof,
    names: Mapping[str, str],
    specialized: Iterable[SpecializedDim],
    relations: Sequence[DimRelation] = (),
) -> DimTable:
    """Returns the dynamic dims of the inputs, then the requested dims that are another one or static.

    Args:
        facts: The sizes for which the captured program is right.
        names: The user's names by expression.
        specialized: The requested dims that are static.
        relations: The relations between dims that the user requested separately.
    """
    places: dict[Any, list[str]] = {}
    for each in facts.sizes.inputs:
        for axis in range(each.value.ndim):
            if not isinstance(dim := each.dim(axis), int):
                places.setdefault(dim, []).append(each.place(axis))
    conditions, found = list(described(facts.conditions, facts.sizes)), list[DimSummary]()
    for dim, where in places.items():
        name, own = names.get(str(dim), where[0]), [each for each in relations if each.dim == dim]
        found.append(DimSummary(name, tuple(where), *_sizes(dim, name, facts, conditions, own)))
    found += [other for each in relations for other in each.others]
    conditions += [each.condition for each in relations]
    for static in specialized:
        place = f"{static.input}.shape[{static.axis}]"
        name = static.name or place
        found.append(DimSummary(name, (place,), f"fixed at {static.size}", static.place))
        kind: Any = "bound" if static.is_bound else "finding"
        text, holds = f"{name} == {static.size}", static.size.__eq__
        conditions.append(SizeCondition(text, kind, (name,), static.reason, static.place, _holds=holds))
    return DimTable(found, conditions)


def _sizes(
    dim: Any, name: str, facts: SizeProof, conditions: Iterable[SizeCondition], relations: Sequence[DimRelation]
) -> tuple[str, str]:
    """Returns the sizes of a dim in words, and the lines that restrict them; a name such as ``2*batch`` tells them."""
    others = [each.sizes for each in relations]
    if not isinstance(dim, sympy.Symbol) and all(each.are_equal for each in relations):
        text = _expression_in_words(dim, facts.sizes.labels)
        others += [] if name.replace(" ", "") == text.removeprefix("equal to ").replace(" ", "") else [text]
    label = facts.sizes.labels.get(str(dim), "")
    own = [each for each in conditions if label in each.dims]
    limits = facts.sizes.declared(dim)
    for each in own:
        found = re.fullmatch(rf"{re.escape(label)} (>=|<=|>|<) (\d+)", each.condition)
        if found is None:
            others.append(_in_words(each.condition, label))
        elif found[1][0] == ">":
            limits = (max(limits[0], int(found[2]) + (found[1] == ">")), limits[1])
        else:
            largest = int(found[2]) - (found[1] == "<")
            limits = (limits[0], largest if limits[1] is None else min(limits[1], largest))
    if limits[0] == 2 and any(each == "even" or each.startswith("a multiple") for each in others):
        limits = (0, limits[1])  # a multiple is not 1
    words = sizes_in_words(*limits, least=1 if facts.sizes.declared(dim)[0] == 1 else 2)
    parts = [*([] if words == "any" else [words]), *dict.fromkeys(others)]
    lines = [*(each.place for each in relations), *(each.place for each in own)]
    places = dict.fromkeys(each[1:-1] for each in lines if each)
    return ", ".join(parts) or "any", f"({'; '.join(places)})" if places else ""


def _expression_in_words(dim: Any, labels: Mapping[str, str]) -> str:
    """Returns what is known of a dim that is an expression; no input has the root of a dim such as ``2*b``."""
    factor, root = dim.as_coeff_Mul()
    if root.is_Symbol and str(root) not in labels:
        return "even" if factor == 2 else f"a multiple of {factor}"
    return f"equal to {expression_text(dim, labels)}"


def _in_words(condition: str, label: str) -> str:
    """Returns a condition such as ``width % 2 == 0`` in words."""
    if (found := re.fullmatch(rf"{re.escape(label)} % (\d+) == 0", condition)) is not None:
        return "even" if found[1] == "2" else f"a multiple of {found[1]}"
    if (found := re.fullmatch(rf"{re.escape(label)} != (\d+)", condition)) is not None:
        return f"not {found[1]}"
    if condition == f"{label} % 2 == 1":
        return "odd"
    if (found := re.fullmatch(rf"{re.escape(label)} == (\d+)", condition)) is not None:
        return f"fixed at {found[1]}"
    return f"where {condition}" if len(condition) <= READABLE else "where a condition holds, which dims.conditions has"
