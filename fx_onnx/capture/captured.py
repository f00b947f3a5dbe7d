"""A successful capture, and the facts about sizes that its guards and comparisons tell; each fact is found once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import sympy
from torch.export import ExportedProgram

from fx_onnx.capture.dynamic_dims import CapturedInput, captured_inputs, dims_and_sizes
from fx_onnx.capture.patches.size_comparisons import SizeComparison
from fx_onnx.capture.python_state import ChangedValue
from fx_onnx.capture.request import Request
from fx_onnx.capture.size_constraints import (
    Restrictions,
    SizeConstraint,
    dim_labels,
    holds_for_example,
    requested_ranges,
    restrictions,
    size_constraints,
)
from fx_onnx.capture.small_sizes import BranchedSizes, ExcludedSize, squeezed_sizes

__all__ = ["Captured", "SizeFacts"]


class SizeFacts:
    """The sizes for which a captured program is right.

    The conditions are evaluated for many sizes, and the module runs for some, so each result is kept.
    """

    def __init__(self, request: Request, program: ExportedProgram, comparisons: Iterable[SizeComparison] = ()) -> None:
        """Takes the comparisons of sizes that the forward made. Strict mode does not show them."""
        self._request = request
        self._program = program
        self._comparisons = tuple(comparisons)

    @cached_property
    def inputs(self) -> list[CapturedInput]:
        """The tensors among the inputs of the graph."""
        return captured_inputs(self._request, self._program)

    @cached_property
    def constraints(self) -> list[SizeConstraint]:
        """The conditions on dynamic dims that the program relies on."""
        return size_constraints(self._request, self._program, self.inputs)

    @cached_property
    def restrictions(self) -> Restrictions:
        """How far the program restricts the dims that were requested as dynamic."""
        return restrictions(self.inputs, self.constraints)

    @cached_property
    def _squeezed(self) -> list[ExcludedSize]:
        return list(squeezed_sizes(self._program))

    @cached_property
    def _branched(self) -> BranchedSizes:
        return BranchedSizes(self._request, self._program, self.inputs, self._comparisons)

    def excluded_sizes(self) -> list[ExcludedSize]:
        """Returns the sizes 0 and 1 for which the program is wrong, except those that constraints exclude."""
        return [*self._squeezed, *self._branched.excluded(self.constraints)]

    def work_for(self, dim: sympy.Symbol, size: int) -> bool:
        """Returns whether the model runs for one requested size of one dim, and the program computes the same."""
        low, _ = requested_ranges(self._request).get(
            dim_labels(self._program, self.inputs).get(str(dim), ""), (0, None)
        )
        if size < low:
            return False
        return self._branched.works(dim, size)

    @cached_property
    def hold_elsewhere(self) -> bool | None:
        """Whether the program computes what the model computes for other sizes of all dims; None if unknown."""
        return self._branched.agree_elsewhere(self.constraints)

    def hold_for_example(self) -> bool:
        """Returns whether a program that was captured from another example is right for the user's example."""
        return holds_for_example(self._request, self.inputs)

    def exclude_example(self) -> bool:
        """Returns whether a constraint, or an excluded size, excludes the sizes of the user's example."""
        sizes = {dim: sympy.Integer(size) for dim, size in self._example_sizes if isinstance(dim, sympy.Symbol)}
        return any(each.excludes(sizes) for each in self.constraints) or self.branch_excludes_example()

    def branch_excludes_example(self) -> bool:
        """Returns whether the model takes another branch for a size of 0 or 1 in the user's example."""
        squeezed = {(each.dim, each.size) for each in self._squeezed}
        pairs = self._example_sizes
        return not squeezed.isdisjoint(pairs) or any(self._branched.excludes(dim, size) for dim, size in pairs)

    @property
    def _example_sizes(self) -> list[tuple[Any, int]]:
        """Each dim of the inputs with its size in the user's example."""
        return dims_and_sizes(self._request, self.inputs)


@dataclass(frozen=True)
class Captured:
    """A successful capture.

    Attributes:
        program: The captured program.
        strict: Whether it was captured in strict mode.
        facts: The sizes for which the program is right.
        decisions: The decisions that led to it.
        changed_values: The attributes that the forward changed. Strict mode does not show them.
        left_out: The places of the exceptions that the program does not raise.
        texts: The places where the forward makes text of a dynamic number.
    """

    program: ExportedProgram
    strict: bool
    facts: SizeFacts
    decisions: tuple[str, ...] = ()
    changed_values: tuple[ChangedValue, ...] = ()
    left_out: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    @property
    def depends_on_text(self) -> bool:
        """Whether the program is wrong for some sizes because the forward computes with the text of a number."""
        return bool(self.texts) and self.facts.hold_elsewhere is False

    def unchecked_texts(self) -> list[str]:
        """Returns one sentence for each text of a number, if the module cannot run to tell whether it matters."""
        places = self.texts if self.texts and self.facts.hold_elsewhere is None else ()
        return [
            "The exported model may be wrong for sizes other than the example's, because the code makes text of a "
            f"size {place}."
            for place in places
        ]

    def because(self, decision: str) -> Captured:
        """Returns the same capture with one more decision, which comes first."""
        return replace(self, decisions=(decision, *self.decisions))
