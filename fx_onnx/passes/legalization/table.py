"""The table of legalization: what an older opset or a runtime cannot run, and what replaces it.

A row is a rule (see ``fx_onnx/passes/rules.py``). The steps to older opsets, the targets and the legalization of 64-bit
operators each run the rows that are theirs. Files are by subject, so all that concerns Resize stands in one file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.rules import DeclinedError, Result, Rule

__all__ = ["DEFAULT", "TABLE", "WIDE", "Legalization", "by_operator", "legalizes"]

DEFAULT = "default"
"""The target of the rows for ONNX Runtime's CPU provider, which other targets run too."""

WIDE = (DataType.DOUBLE,)
"""``lacks`` of the operators that some runtime has of float32 only."""


class Legalization(Rule):
    """A row of the table. ``legalizes`` makes it of a function.

    Attributes:
        targets: the names of the targets that need it.
        lacks: the element types for which runtimes may have no kernel; the row is for those that have none.
        after_casts: whether it needs the dtypes with the Casts that a target inserts.
    """

    def __init__(
        self,
        function: Callable[..., Result],
        patterns: Sequence[str],
        *,
        targets: Collection[str],
        lacks: Collection[DataType],
        since: int,
        until: int | None,
        where: Mapping[str, Callable[[Value], bool]],
    ) -> None:
        super().__init__(function, patterns, since=since, until=until, where=where)
        self.targets, self.lacks, self.after_casts = targets, lacks, False

    @property
    def is_of_opset(self) -> bool:
        """Whether it is part of the step to the opset ``until``, whatever the target is."""
        return not self.targets and not self.lacks

    def declines(self, node: ir.Node, reason: str, *args: object) -> bool:
        """Logs the reason. Where no other opset helps, as in the step to an older opset, this is an error.

        Raises:
            DeclinedError: the row is part of a step to an older opset.
        """
        if self.is_of_opset:
            raise DeclinedError(reason % args if args else reason)
        return super().declines(node, reason, *args)


TABLE: list[Legalization] = []
"""The rows of the files that are imported so far."""


def by_operator(rows: Iterable[Legalization]) -> Mapping[str, Sequence[Legalization]]:
    """Returns the rows for each type of the nodes at which their patterns end, in order."""
    grouped: dict[str, list[Legalization]] = {}
    for row in rows:
        for _, op_type in row.roots():
            grouped.setdefault(op_type, []).append(row)
    return grouped


def legalizes(
    *patterns: str,
    until: int | None = None,
    since: int = 0,
    targets: Collection[str] = (),
    lacks: Collection[DataType] = (),
    where: Mapping[str, Callable[[Value], bool]] | Iterable[tuple[str, Callable[[Value], bool]]] = (),
    after_casts: bool = False,
) -> Callable[[Callable[..., Result] | Legalization], Legalization]:
    """Adds a row to the table: a function that builds the result of a match, as for ``rules.rule``.

    Without ``targets`` and ``lacks``, the row is part of the step from opset ``until + 1`` to ``until``. Its nodes have
    the form of the newer opset, and it emits those of the older one. A function that returns None leaves the node as it
    is; a clause that it returns is the reason for which the older opset cannot express the node. Several decorators of
    one function make several rows; the first one is what its name means.

    Args:
        patterns: the patterns, each of which ends at a node of the older form.
        until: the last opset whose models need the row.
        since: the first such opset; for targets only.
        targets: the targets that need the row.
        lacks: the element types of the first input for which a runtime may have no kernel, for rows that replace such
            operators by others that have one.
        where: conditions on values of the patterns, by name.
        after_casts: whether the row runs after the Casts that a target inserts, because it needs their dtypes.
    """

    def add(function: Callable[..., Result] | Legalization) -> Legalization:
        plain = function.function if isinstance(function, Legalization) else function
        row = Legalization(plain, patterns, targets=targets, lacks=lacks, since=since, until=until, where=dict(where))
        row.after_casts = after_casts
        TABLE.append(row)
        return row

    return add
