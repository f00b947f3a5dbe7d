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
    for captured in facts.sizes.inputs:
        for axis in range(captured.value.ndim):
            if not isinstance(dim := captured.dim(axis), int):
                places.setdefault(dim, []).append(captured.axis_text(axis))
    conditions, summaries = list(described(facts.conditions, facts.sizes)), list[DimSummary]()
    for dim, where in places.items():
        name, own = names.get(str(dim), where[0]), [relation for relation in relations if relation.dim == dim]
        summaries.append(DimSummary(name, tuple(where), *_sizes(dim, name, facts, conditions, own)))
    summaries += [other for relation in relations for other in relation.others]
    conditions += [relation.condition for relation in relations]
    for static in specialized:
        axis_text = f"{static.input}.shape[{static.axis}]"
        name = static.name or axis_text
        summaries.append(DimSummary(name, (axis_text,), f"fixed at {static.size}", static.line))
        kind: Any = "bound" if static.is_bound else "finding"
        text, holds = f"{name} == {static.size}", static.size.__eq__
        conditions.append(SizeCondition(text, kind, (name,), static.reason, static.line, _holds=holds))
    return DimTable(summaries, conditions)


def _sizes(
    dim: Any, name: str, facts: SizeProof, conditions: Iterable[SizeCondition], relations: Sequence[DimRelation]
) -> tuple[str, str]:
    """Returns the sizes of a dim in words, and the lines that restrict them; a name such as ``2*batch`` tells them."""
    others = [relation.sizes for relation in relations]
    if not isinstance(dim, sympy.Symbol) and all(relation.are_equal for relation in relations):
        text = _expression_in_words(dim, facts.sizes.labels)
        others += [] if name.replace(" ", "") == text.removeprefix("equal to ").replace(" ", "") else [text]
    label = facts.sizes.labels.get(str(dim), "")
    own = [condition for condition in conditions if label in condition.dims]
    limits = facts.sizes.declared(dim)
    for condition in own:
        match = re.fullmatch(rf"{re.escape(label)} (>=|<=|>|<) (\d+)", condition.condition)
        if match is None:
            others.append(_in_words(condition.condition, label))
        elif match[1][0] == ">":
            limits = (max(limits[0], int(match[2]) + (match[1] == ">")), limits[1])
        else:
            largest = int(match[2]) - (match[1] == "<")
            limits = (limits[0], largest if limits[1] is None else min(limits[1], largest))
    if limits[0] == 2 and any(other == "even" or other.startswith("a multiple") for other in others):
        limits = (0, limits[1])  # a multiple is not 1
    words = sizes_in_words(*limits, least=1 if facts.sizes.declared(dim)[0] == 1 else 2)
    parts = [*([] if words == "any" else [words]), *dict.fromkeys(others)]
    lines = [*(relation.line for relation in relations), *(condition.place for condition in own)]
    places = dict.fromkeys(line[1:-1] for line in lines if line)
    return ", ".join(parts) or "any", f"({'; '.join(places)})" if places else ""


def _expression_in_words(dim: Any, labels: Mapping[str, str]) -> str:
    """Returns what is known of a dim that is an expression; no input has the root of a dim such as ``2*b``."""
    factor, root = dim.as_coeff_Mul()
    if root.is_Symbol and str(root) not in labels:
        return "even" if factor == 2 else f"a multiple of {factor}"
    return f"equal to {expression_text(dim, labels)}"


_WORDS = {
    r" % 2 == 0": "even",
    r" % 2 == 1": "odd",
    r" % (\d+) == 0": "a multiple of {}",
    r" != (\d+)": "not {}",
    r" == (\d+)": "fixed at {}",
}
"""A condition after the label of its dim → the sizes in words."""


def _in_words(condition: str, label: str) -> str:
    """Returns a condition such as ``width % 2 == 0`` in words."""
    for pattern, words in _WORDS.items():
        if (match := re.fullmatch(re.escape(label) + pattern, condition)) is not None:
            return words.format(*match.groups())
    return f"where {condition}" if len(condition) <= READABLE else "where a condition holds, which dims.conditions has"
