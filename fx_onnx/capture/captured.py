"""A successful capture."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from torch.export import ExportedProgram

from fx_onnx.capture.patches.dynamic_sizes import CHUNKS, SPLITS
from fx_onnx.capture.proof.data_sizes import DataSizes
from fx_onnx.capture.proof.dim_relations import DimRelation
from fx_onnx.capture.proof.size_proof import SizeProof
from fx_onnx.capture.python_state import ChangedValue

__all__ = ["Captured", "DataCondition"]


class DataCondition(NamedTuple):
    """A condition on data on one path through the forward.

    Attributes:
        answer: what it is on this path.
        line: the line of the code, as ``(file:line: code)``.
        is_general: whether the rest of the path leaves the sizes before it as they were there. What makes a size a
            number, or excludes some, changes the calls before the condition too.
    """

    answer: bool
    line: str
    is_general: bool = False


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
        relations: The relations between dims that the user requested separately.
        data_sizes: What is known of the sizes that depend on data.
        conditions: The conditions on data on the path of the program, in order.
    """

    program: ExportedProgram
    strict: bool
    facts: SizeProof
    decisions: tuple[str, ...] = ()
    changed_values: tuple[ChangedValue, ...] = ()
    left_out: tuple[str, ...] = ()
    relations: tuple[DimRelation, ...] = ()
    data_sizes: DataSizes = field(default_factory=DataSizes)
    conditions: tuple[DataCondition, ...] = ()

    @property
    def restrictions(self) -> int:
        """The number of findings, and of requested dims that are static."""
        static = sum(
            isinstance(captured.dim(axis), int)
            for captured in self.facts.sizes.inputs
            for axis in captured.request.axes
        )
        return static + sum(condition.kind == "finding" for condition in self.facts.conditions)

    @property
    def frozen(self) -> tuple[int, int]:
        """The number of findings where a size becomes a Python number, and of all restrictions; a better one has less.

        A branch restricts a program less than a number that is right for the sizes of the example only.
        """
        numbers = sum(condition.kind == "finding" and condition.converts for condition in self.facts.conditions)
        return numbers, self.restrictions

    @property
    def truncates_sizes(self) -> bool:
        """Whether the program is restricted, and the model calls ``int`` with an expression of sizes."""
        return self.restrictions > 0 and self.facts.truncated

    @property
    def counts_pieces(self) -> bool:
        """Whether the number of pieces of a ``split`` or ``chunk`` restricts the program, which does not use all."""
        findings = (condition for condition in self.facts.conditions if condition.kind == "finding")
        items = self.program.graph.find_nodes(op="call_function", target=operator.getitem)
        return not all(item.users for item in items) and any(
            finding.function in (*SPLITS, *CHUNKS) for finding in findings
        )

    def because(self, decision: str) -> Captured:
        """Returns the same capture with one more decision, which comes first."""
        return replace(self, decisions=(decision, *self.decisions))
