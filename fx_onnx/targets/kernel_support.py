"""Compares the nodes of a model with the table of a runtime's kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir

from fx_onnx.messages.errors import UnsupportedOperatorError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model import metadata, opsets
from fx_onnx.onnx_model.schemas import Parameter, operator_schema
from fx_onnx.passes.legalization.kernel_tables import DTYPES, Kernel, KernelTable, since_version
from fx_onnx.passes.legalization.legalize import LEGALIZATIONS
from fx_onnx.passes.rewriter import Rewrite
from fx_onnx.passes.traversal import all_nodes, graphs_of
from fx_onnx.targets.target import Target

if TYPE_CHECKING:
    from fx_onnx.targets.compilation import Compilation

__all__ = ["MissingKernel", "Support", "support"]

_TABLED = frozenset(ir.DataType[name.upper()] for name in DTYPES.values())


@dataclass(frozen=True)
class MissingKernel:
    """One node that the runtime has no kernel for.

    Attributes:
        node: the name of the node.
        operator: the operator with its domain, if that is not ONNX's own.
        reason: what is missing.
        line: the line of the model's code, ``file:line``; empty if it is not known.
    """

    node: str
    operator: str
    reason: str
    line: str = ""

    def __str__(self) -> str:
        if not self.operator:  # the reason is of the whole model
            return self.reason
        return f"{self.operator} ({self.node}{', ' + self.line if self.line else ''}): {self.reason}"


@dataclass(frozen=True)
class Support:
    """How much of a model a runtime has kernels for.

    Attributes:
        target: the name of the target.
        nodes: the number of nodes, those of bodies and functions included.
        missing: the nodes without a kernel.
        is_known: whether there is a table of kernels for the runtime. Without one, only the record's own list of
            operators is compared.
        advice: which opset has kernels for more nodes.
        source: the runtime, its version and the date of the table; without a table, the versions of the record.
        limits: what the comparison does not check.
        replaceable: the operators of ``missing`` that an export for the target replaces in most cases.
        compilation: what the runtime's own compiler said; None if the target has none, or it was not called.
    """

    target: str
    nodes: int
    missing: tuple[MissingKernel, ...]
    is_known: bool
    advice: tuple[str, ...]
    source: str
    limits: str
    replaceable: tuple[str, ...] = ()
    compilation: Compilation | None = None

    @property
    def share(self) -> float | None:
        """The share of the nodes with a kernel, from 0 to 1; None without a table."""
        if not self.is_known:
            return None
        return 1.0 if not self.nodes else 1 - len(self.missing) / self.nodes

    @property
    def is_compiled(self) -> bool:
        """Whether the compiler of the runtime judged the model. Otherwise the table did."""
        return self.compilation is not None and not self.compilation.unjudged

    def refuse_missing(self) -> None:
        """Checks that the runtime has a kernel for every node.

        Raises:
            UnsupportedOperatorError: it has none for some nodes. The message lists each with its line in the model's
                code.
        """
        if self.missing:
            listed = "; ".join(map(str, self.missing))
            advice = f" {self.advice[0].capitalize()}." if self.advice else ""
            raise UnsupportedOperatorError(
                f"The target {self.target} cannot run the model: {listed}.{advice}", id=MessageId.TARGET_LACKS_OPERATOR
            )

    def __bool__(self) -> bool:
        """Whether the table has a kernel for every node, or the compiler took the model."""
        return self.is_known and not self.missing

    def __str__(self) -> str:
        if self.compilation is not None and self.compilation.size:
            lines = [f"{self.target}: compiled, {self.compilation.size:,} bytes ({self.source})"]
        elif self.is_compiled and self.missing:
            lines = [f"{self.target}: the compiler refuses the model ({self.source})"]
        elif self.share is None:
            count = str(len(self.missing)) if self.missing else "none"
            lines = [f"{self.target}: {count} of {self.nodes} nodes known not to run ({self.source})"]
        else:
            lines = [f"{self.target}: {self.share:.1%} of {self.nodes} nodes have a kernel ({self.source})"]
        kind = "without a kernel" if self.is_known and not self.is_compiled else "does not run"
        if self.compilation is not None and self.compilation.size:
            kind = "computed otherwise"
        lines += [f"  {kind}: {kernel}" for kernel in self.missing]
        advice = [*self.advice]
        if self.replaceable:
            advice.append(f"an export with target={self.target!r} replaces {', '.join(self.replaceable)} in most cases")
        return "\n".join([*lines, *(f"  {hint}" for hint in advice), f"  {self.limits}"])


def support(model: ir.Model, target: Target, compilation: Compilation | None = None) -> Support:
    """Compares the nodes of a model with the table of a target's kernels, unless its compiler took the model."""
    table, opset = target.kernels, model.graph.opset_imports.get("", 0)
    is_taken = compilation is not None and compilation.size > 0
    nodes = list(_nodes(model))
    inexact = target.inexact or (lambda node: "")
    missing = tuple(
        MissingKernel(
            node.name or "",
            f"{node.domain}.{node.op_type}".lstrip("."),
            reason,
            metadata.source_line(node.metadata_props),
        )
        for node in nodes
        if (reason := inexact(node) if is_taken else _reason(node, opset, target, table, model))
    )
    if compilation is not None:
        missing = _refused(compilation, nodes) + missing
    source = target.versions if table is None else f"{table.runtime} {table.version}, table of {table.date}"
    if compilation is not None and not compilation.unjudged:
        source = compilation.runtime
    elif target.compiler is not None:
        source = f"by its table, not compiled: {source}"
    return Support(
        target.name,
        len(nodes),
        missing,
        table is not None,
        tuple(_advice(nodes, missing, opset, target)),
        source,
        _limits(target, compilation),
        () if is_taken else _replaceable(missing, target),
        compilation,
    )


def _refused(compilation: Compilation, nodes: list[ir.Node]) -> tuple[MissingKernel, ...]:
    """Returns the nodes that a compiler refuses; one without a name if it names none of them."""
    named = {str(node.name): node for node in nodes}
    refused = []
    for refusal in compilation.refusals:
        node = named.get(refusal.node)
        line = "" if node is None else metadata.source_line(node.metadata_props)
        operator = refusal.operator if node is None else node.op_type
        refused.append(MissingKernel(refusal.node, operator, refusal.text, line))
    return tuple(refused)


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Yields the nodes that a runtime runs: a call of a local function counts as the nodes of the function."""
    for graph in graphs_of(model):
        yield from (node for node in all_nodes(graph) if node.op_identifier() not in model.functions)


def _reason(node: ir.Node, opset: int, target: Target, table: KernelTable | None, model: ir.Model) -> str:
    """Returns why a node does not run; empty if it does, or if nothing is known."""
    if node.domain:
        names = {node.domain, f"{node.domain}.{node.op_type}"}
        is_known = not names.isdisjoint(target.domains) or not model.graph.opset_imports.get(node.domain)
        return "" if is_known else f"the domain {node.domain} is not ONNX's own"
    dtypes = _dtypes(node, opset)
    first = next(iter(dtypes.values()), None)
    dtype = None if first is None else first.name.lower()
    lack = next((row for row in target.lacks if row.covers(node.op_type, opset, dtype)), None)
    if lack is not None:
        has_other_opsets = lack.first > opsets.OLDEST_OPSET or lack.last is not None
        return lack.reason or "no kernel" + f" at opset {opset}" * has_other_opsets
    for check in (target.inexact, target.constraint):
        if check is not None and (reason := check(node)):
            return reason
    version = since_version(node.op_type, opset)
    if table is None or node.op_type == "Constant" or version is None:
        return ""
    kernels = table.kernels(node.op_type, version)
    if any(_admits(kernel, dtypes, table) for kernel in kernels):
        return ""
    if target.expands_functions and _has_body(node.op_type, opset):
        return ""
    others = table.rows.get(node.op_type, ())
    if not kernels:
        return "no kernel" + f" at opset {opset}" * bool(others)
    where = f" at opset {opset}" * any(_admits(kernel, dtypes, table) for kernel in others)
    return f"no kernel{where} for {', '.join(sorted({dtype.name.lower() for dtype in dtypes.values()}))}"


def _dtypes(node: ir.Node, opset: int) -> dict[str, ir.DataType]:
    """Returns the dtypes of a node that the tables contain, by type variable and by name of the input or output."""
    schema = operator_schema(node.op_type, opset)
    if schema is None:
        return {}
    dtypes: dict[str, ir.DataType] = {}
    for formal, values in ((schema.inputs, node.inputs), (schema.outputs, node.outputs)):
        for index, value in enumerate(values):
            parameter = _parameter(formal, index)
            if value is None or value.dtype not in _TABLED or parameter is None:
                continue
            if parameter.homogeneous or not parameter.variadic:
                dtypes.setdefault(parameter.type, value.dtype)
                dtypes.setdefault(parameter.name, value.dtype)
    return dtypes


def _parameter(formal: tuple[Parameter, ...], index: int) -> Parameter | None:
    return formal[min(index, len(formal) - 1)] if formal else None


def _admits(kernel: Kernel, dtypes: dict[str, ir.DataType], table: KernelTable) -> bool:
    """Returns whether a kernel takes the dtypes."""
    cast = (ir.DataType.FLOAT16,) if table.casts_float16 else ()
    return all(
        dtypes[name] in admitted or (dtypes[name] in cast and ir.DataType.FLOAT in admitted)
        for name, admitted in kernel.admitted.items()
        if name in dtypes
    )


def _has_body(op_type: str, opset: int) -> bool:
    """Returns whether ONNX defines the operator by a function body of other operators."""
    schema: Any = onnx.defs.get_schema(op_type, opset)  # its type does not list these attributes
    return bool(schema.has_function or schema.has_context_dependent_function)


def _advice(nodes: list[ir.Node], missing: tuple[MissingKernel, ...], opset: int, target: Target) -> Iterator[str]:
    """Yields which opset has kernels for more of the operators."""
    if not missing:
        return
    names = {node.op_type for node in nodes if not node.domain}
    without = {
        version: _lacking(names, version, target) for version in range(opsets.OLDEST_OPSET, opsets.MAXIMUM_OPSET + 1)
    }
    fewest = min(without.values(), key=len)
    if len(fewest) < len(without.get(opset, names)):
        best = [version for version, lacking in without.items() if len(lacking) == len(fewest)]
        near = min(best, key=lambda version: (abs(version - opset), version))
        helped = ", ".join(sorted(without.get(opset, names) - fewest))
        yield f"opset_version={near} has kernels for {helped}"


def _replaceable(missing: tuple[MissingKernel, ...], target: Target) -> tuple[str, ...]:
    """Returns the missing operators for which the target has a legalization that a default export does not run."""
    own = [row for row in target.legalizations if isinstance(row, Rewrite) and row not in LEGALIZATIONS]
    replaced = {op_type for row in own for _, op_type in row.roots()}
    return tuple(sorted(replaced & {kernel.operator for kernel in missing}))


def _lacking(names: set[str], opset: int, target: Target) -> set[str]:
    """Returns the operators without any kernel in an opset; one that the opset does not have counts as lacking."""
    table = target.kernels
    lacking = set()
    for name in names:
        version = since_version(name, opset)
        is_listed = table is None or name == "Constant" or (version is not None and table.kernels(name, version))
        if not is_listed and target.expands_functions and version is not None:
            is_listed = _has_body(name, opset)
        if version is None or not is_listed or any(lack.covers(name, opset, lack.dtype) for lack in target.lacks):
            lacking.add(name)
    return lacking


def _limits(target: Target, compilation: Compilation | None) -> str:
    """Returns what the comparison does not check."""
    table = target.kernels
    if compilation is not None and not compilation.unjudged:
        return "Nothing was run."
    if table is None:
        return "There is no table for this runtime: a node that is not listed may still have no kernel."
    parts = [] if table.has_dtypes else ["dtypes"]
    parts += ["ranks", "attributes", "inputs that must be constants"]
    state = "" if target.executed else " No model was run in this runtime."
    if target.compiler is not None:
        why = "its compiler was not called" if compilation is None else compilation.unjudged
        state += f" The model was not compiled: {why}."
    return f"The table does not contain {', '.join(parts[:-1])} and {parts[-1]}.{state}"
