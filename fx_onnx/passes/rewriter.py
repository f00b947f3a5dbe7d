"""The base classes of passes, and the walk in which rewrites of single nodes share one pass over the graph."""

from __future__ import annotations

import functools
import itertools
import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import onnx_ir as ir

from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.progress import report_progress
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import Kinds, kind_of
from fx_onnx.passes.traversal import all_nodes, graphs_of

__all__ = ["LOGGER_NAME", "Attempt", "NodeChange", "Pass", "Rewrite", "apply", "count_nodes", "has_reference", "walk"]

LOGGER_NAME: Final = "fx_onnx.passes"
"""The logger of ``Pass.declines``; it logs at level DEBUG."""

_logger = logging.getLogger(LOGGER_NAME)

_REWRITES_OF_A_NODE = 100
"""How often the nodes of a graph are rewritten on average before the walk gives up."""


class Pass(ir.passes.InPlacePass):
    """An onnx_ir pass with a name, by which a caller can switch it off."""

    name: str

    def declines(self, node: ir.Node, reason: str, *args: object) -> bool:
        """Logs why a node that nearly matches is not rewritten. Returns False, which ``rewrite`` can return.

        Costs one check of the log level when DEBUG is off.

        Args:
            node: the node at which the pattern ends.
            reason: a clause such as "another node reads the Sigmoid", with a ``%s`` for each of ``args``.
            args: the values that complete the reason. They are formatted only if the log is on.
        """
        if _logger.isEnabledFor(logging.DEBUG):
            label = f"{node.op_type} {node.name or node.outputs[0].name}"
            _logger.debug(f"%s declines %s: {reason}", self.name, label, *args)
        return False

    def of(self, model: ir.Model) -> Pass | None:
        """Returns the pass that runs on a model; None if the model does not need it."""
        return self


class Attempt(NamedTuple):
    """One way to rewrite a node.

    Attributes:
        rewrite: rewrites a node if it can. Returns whether it changed anything.
        fits: returns whether it may rewrite a node whose operands have these kinds, so that the walk calls ``rewrite``.
    """

    rewrite: Callable[[ir.Node, Editor], bool]
    fits: Callable[[Kinds], bool] = lambda kinds: True


class Rewrite(Pass):
    """A pass that rewrites one node at a time. Consecutive rewrites share one walk over the graph (see ``walk``)."""

    op_types: ClassVar[tuple[str, ...]] = ()
    """The operators of ONNX's default domain at which the pattern ends; ``rewrite`` is called for these nodes."""

    since: int = 0
    """The first opset at which the pass applies. A fusion needs an opset that has the fused operator."""

    until: int | None = None
    """The last opset at which the pass applies, if a later opset has an operator that does more."""

    def roots(self) -> Collection[tuple[str, str]]:
        """Returns the domain and type of the operators for whose nodes ``rewrite`` is called."""
        return [("", op_type) for op_type in self.op_types]

    def attempts(self, root: tuple[str, str]) -> Iterable[Attempt]:
        """Yields what the walk calls for the nodes of a root, in order, until one of them changes something."""
        yield Attempt(self.rewrite)

    @abstractmethod
    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites ``node``, one of ``roots``, if the pattern matches. Returns whether it changed anything."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Runs this rewrite alone."""
        return ir.passes.PassResult(model, walk(model, (self,)))


@dataclass
class NodeChange:
    """What a pass changed: how often it changed the graph, and how many nodes more the model has."""

    applied: int = 0
    nodes: int = 0

    def add(self, nodes: int) -> None:
        """Counts one change of the graph, after which it has ``nodes`` more nodes."""
        self.applied += 1
        self.nodes += nodes


def apply(model: ir.Model, passes: Iterable[Pass], changes: dict[str, NodeChange] | None = None) -> ir.Model:
    """Runs the passes in order and returns the model, which they change in place. Consecutive rewrites share a walk.

    Args:
        model: the model.
        passes: the passes.
        changes: receives what each pass changed, by the name of the pass.
    """
    passes = [applicable for given in passes if (applicable := given.of(model)) is not None]
    done = 0
    for are_rewrites, group in itertools.groupby(passes, lambda step: isinstance(step, Rewrite)):
        report_progress(done, len(passes))
        if are_rewrites:
            rewrites = [rewrite for rewrite in group if isinstance(rewrite, Rewrite)]
            walk(model, rewrites, changes)
            done += len(rewrites)
            continue
        for step in group:
            report_progress(done, len(passes))
            done += 1
            before = count_nodes(model) if changes is not None else 0
            result = step(model)
            model = result.model
            if changes is not None and result.modified:
                changes.setdefault(step.name, NodeChange()).add(count_nodes(model) - before)
    return model


def count_nodes(model: ir.Model) -> int:
    """Returns the number of nodes of the graph, its subgraphs and all functions."""
    return sum(1 for graph in graphs_of(model) for _ in all_nodes(graph))


def walk(model: ir.Model, rewrites: Sequence[Rewrite], changes: dict[str, NodeChange] | None = None) -> bool:
    """Calls the rewrites for every node of the graph, its subgraphs and all functions. Returns whether any applied.

    After a rewrite, the node and its neighbours are visited again, because the change may complete another pattern.
    The walk ends when no rewrite applies.

    Args:
        model: the model.
        rewrites: the rewrites.
        changes: receives what each rewrite changed, by its name.

    Raises:
        ArgumentError: the rewrites find no end, as one that matches its own result.
    """
    applied = 0
    for function in (None, *model.functions.values()):
        editor = Editor(model, function)
        graph = model.graph if function is None else function
        by_type = _by_type(tuple(rewrites), graph.opset_imports.get("", 0))
        nodes_to_visit = [node for node in all_nodes(graph) if node.op_type in by_type]
        limit = applied + _REWRITES_OF_A_NODE * (len(nodes_to_visit) + 10)
        editor.enqueue(nodes_to_visit)
        for node in editor.worklist():
            attempts = by_type.get(node.op_type, {}).get(node.domain)
            if attempts is None or node.graph is None or (function and has_reference(node)):
                continue
            nodes = editor.added_nodes
            for name, rewrite in attempts[tuple(map(kind_of, node.inputs))]:
                if rewrite(node, editor):
                    applied += 1
                    if applied > limit:
                        raise ArgumentError(f"The rule {name} rewrites its own results without end; decline them.")
                    if changes is not None:
                        changes.setdefault(name, NodeChange()).add(editor.added_nodes - nodes)
                    editor.enqueue(_neighbourhood(node))
                    break
    return applied > 0


class _Attempts(dict[Kinds, list[tuple[str, Callable[[ir.Node, Editor], bool]]]]):
    """The names and functions of the attempts that the nodes of an operator need, by the kinds of their operands."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[tuple[str, Attempt]] = []

    def __missing__(self, kinds: Kinds) -> list[tuple[str, Callable[[ir.Node, Editor], bool]]]:
        self[kinds] = attempts = [(name, attempt.rewrite) for name, attempt in self.all if attempt.fits(kinds)]
        return attempts


@functools.lru_cache(maxsize=64)
def _by_type(rewrites: tuple[Rewrite, ...], opset: int) -> Mapping[str, Mapping[str, _Attempts]]:
    """Returns the attempts that apply at an opset, with the name of the rewrite, by type and domain of the node."""
    by_type: dict[str, dict[str, _Attempts]] = {}
    for rewrite in rewrites:
        if rewrite.since <= opset and (rewrite.until is None or opset <= rewrite.until):
            for domain, op_type in rewrite.roots():
                attempts = by_type.setdefault(op_type, {}).setdefault(domain, _Attempts())
                attempts.all.extend((rewrite.name, attempt) for attempt in rewrite.attempts((domain, op_type)))
    return by_type


def _neighbourhood(node: ir.Node) -> list[ir.Node]:
    """Returns the producers of the node's inputs, the node, and the consumers of its results."""
    producers = [x.producer() for x in node.inputs if x is not None]
    consumers = [use.node for output in node.outputs for use in output.uses()]
    return [x for x in (*producers, node, *consumers) if x is not None]


def has_reference(node: ir.Node) -> bool:
    """Returns whether an attribute refers to an attribute of the enclosing function, whose value is unknown here."""
    return any(attr.is_ref() for attr in node.attributes.values())
