"""The record that describes a target: the runtime for which a model is exported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from fx_onnx.extension_points.translation_table import Translation
from fx_onnx.messages.arguments import shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model import opsets
from fx_onnx.passes.legalization.kernel_tables import KernelTable, kernel_table, since_version
from fx_onnx.passes.legalization.legalize import LEGALIZATIONS
from fx_onnx.passes.rewriter import Pass

if TYPE_CHECKING:
    from fx_onnx.targets.compilation import Compilation

__all__ = ["Lack", "Target"]


@dataclass(frozen=True)
class Lack:
    """An operator that a runtime cannot run, although its table of kernels lists it, or that has no table.

    Attributes:
        op_type: the operator, of ONNX's default domain.
        first: the first opset of a model in which the operator does not run.
        last: the last such opset; None if it does not run in any later one.
        dtype: the dtype of the first input with which it does not run, for example ``"float64"``; None means all.
        reason: what happens, in a few words.

    Raises:
        ArgumentError: ONNX has no such operator.
    """

    op_type: str
    first: int = 1
    last: int | None = None
    dtype: str | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        """Checks the operator."""
        if not any(
            since_version(self.op_type, opset) for opset in (self.first, self.last, opsets.MAXIMUM_OPSET) if opset
        ):
            raise ArgumentError(
                f"ONNX has no operator {shown(self.op_type)} in these opsets; op_type is the name of an operator of "
                "ONNX, such as 'Gelu'.",
                id=MessageId.TARGET,
            )

    def covers(self, op_type: str, opset: int, dtype: str | None) -> bool:
        """Returns whether a node of a model of this opset cannot run; ``dtype`` is that of its first input."""
        in_range = self.first <= opset and (self.last is None or opset <= self.last)
        return op_type == self.op_type and in_range and self.dtype in (None, dtype)


@dataclass(frozen=True)
class Target:
    """The record of one runtime.

    Attributes:
        name: the name for ``export(target=...)``.
        versions: the versions of the runtime that the record is for.
        opset: the opset of the model, unless the caller gives another one.
        executed: whether models for this target were run in the runtime; ``docs/runtimes.md`` has the results. If not,
            the record comes from published tables or known facts.
        table: the name of the table of kernels; None if there is none for this runtime.
        lacks: operators that do not run, in addition to those that the table does not list.
        constraint: returns why the runtime cannot run a node although it has a kernel for the operator and the dtype,
            for example because of an input that must be constant; empty if it can.
        inexact: returns what the runtime computes otherwise than ONNX although it takes the node, for example float64
            in float32; empty if nothing.
        expands_functions: whether the runtime replaces an operator without a kernel by the function body that ONNX
            defines for it.
        refuses: whether an operator that the runtime lacks is an error. Otherwise the log and the report list it.
        translations: the translations to operators of the runtime's own domains. They have precedence, if the caller
            names the target.
        legalizations: the passes that replace what the runtime lacks, in order.
        fusions: the passes that insert operators of the runtime's own domains, after the legalizations. They run only
            if the caller names the target.
        domains: the domains whose operators the runtime has in addition to ONNX's own, or single operators of them,
            such as ``"com.microsoft.MatMulNBits"``.
        without: the names of the optimizer's passes that are left out.
        check: warns of what is wrong with a model although the runtime has a kernel for each node, for example an input
            to which the program that calls the runtime gives no value.
        compiler: compiles a model with the runtime's own compiler; it gets the shape of each input with dynamic dims
            and tells why it did not see the model. ``ONNXProgram.supports`` calls it, the export does not.
        notes: what a user should know, one sentence each.

    Raises:
        ArgumentError: ``lacks`` holds something else than records of Lack.
    """

    name: str
    versions: str
    opset: int = opsets.DEFAULT_OPSET
    executed: bool = False
    table: str | None = None
    lacks: tuple[Lack, ...] = ()
    constraint: Callable[[ir.Node], str] | None = None
    inexact: Callable[[ir.Node], str] | None = None
    expands_functions: bool = False
    refuses: bool = False
    translations: tuple[Translation, ...] = ()
    legalizations: tuple[Pass, ...] = LEGALIZATIONS
    fusions: tuple[Pass, ...] = ()
    domains: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    check: Callable[[ir.Model], None] | None = None
    compiler: Callable[[ir.Model, Mapping[str, Sequence[int]]], Compilation] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Checks the entries of ``lacks``."""
        lacks: Any = self.lacks
        if not isinstance(lacks, tuple) or not all(isinstance(lack, Lack) for lack in lacks):
            raise ArgumentError(f"lacks must be a tuple of Lack, not {shown(lacks)}.", id=MessageId.TARGET)

    @property
    def kernels(self) -> KernelTable | None:
        """The table of kernels, or None."""
        return None if self.table is None else kernel_table(self.table)
