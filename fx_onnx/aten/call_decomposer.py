"""Replaces single calls of a program by their decompositions, and equal calls by copies of one traced graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from torch.fx import Graph, Node

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.decomposition_lookup import Decomposition, find_decomposition
from fx_onnx.aten.fx_nodes import FlatCall, makes_symbols, source_line
from fx_onnx.aten.fx_rewriting import replace, splice
from fx_onnx.aten.tracing.replacement_tracer import ReplacementTracer
from fx_onnx.core.errors import UnsupportedOperatorError

_MAX_RECURSION = 2
"""A decomposition may contain its own operator, on simpler arguments, this many times before it counts as endless."""


def decompose_calls(program: AtenProgram, needed: Callable[[Node], bool]) -> AtenProgram:
    """Decomposes every call for which ``needed`` returns True, recursively; rewrites the graphs in place.

    Raises:
        UnsupportedOperatorError: some of the calls have no decomposition; the message lists all operators.
        TranslationError: a decomposition fails, or specializes a symbolic size.
    """
    decomposer = _CallDecomposer(ReplacementTracer.of(program), needed)
    for graph in program.graphs:
        decomposer.rewrite(graph, ())
    if decomposer.unsupported:
        raise UnsupportedOperatorError(_list_unsupported(decomposer.unsupported))
    return program


@dataclass
class _CallDecomposer:
    """Traces decompositions, each distinct call once, and puts them in place of the calls.

    Attributes:
        tracer: traces the decompositions.
        needed: returns whether a call must be decomposed.
        memo: the key of a call → the graph that it decomposes to.
        unsupported: the operators without a decomposition, each with its calls.
    """

    tracer: ReplacementTracer
    needed: Callable[[Node], bool]
    memo: dict[Hashable, Graph] = field(default_factory=dict)
    unsupported: dict[str, list[Node]] = field(default_factory=dict)

    def rewrite(self, graph: Graph, ancestors: tuple[Any, ...]) -> None:
        """Replaces the calls in a graph that must be decomposed.

        Args:
            graph: the graph, rewritten in place.
            ancestors: the operators whose decompositions led to this graph, outermost first.
        """
        for node in list(graph.nodes):
            if self.needed(node):
                call = FlatCall.of(node)
                if (traced := self._decomposed(call, ancestors)) is not None:
                    results, made = splice(graph, node, call.inputs, traced)
                    replace(graph, node, results, made)

    def _decomposed(self, call: FlatCall, ancestors: tuple[Any, ...]) -> Graph | None:
        """Returns the graph that a call decomposes to, fully decomposed; None if the call has no decomposition."""
        if call.key in self.memo:
            return self.memo[call.key]
        target = call.node.target
        found = find_decomposition(target)
        is_endless = ancestors.count(target) > _MAX_RECURSION
        graph = None if found is None or is_endless else self._trace(found, call)
        if graph is None:
            self.unsupported.setdefault(_target_name(target), []).append(call.node)
            return None
        for each in list(self._with_bodies(graph)):
            self.rewrite(each, (*ancestors, target))
        if not any(makes_symbols(inner) for inner in graph.nodes):
            self.memo[call.key] = graph
        return graph

    def _trace(self, found: Decomposition, call: FlatCall) -> Graph | None:
        def decomposed(*values: Any) -> Any:
            args, kwargs = call.bind(values)
            return found.function(*args, **kwargs)

        values = [node.meta["val"] for node in call.inputs]
        return self.tracer.trace(decomposed, values, call.node, found.keeps_composites)

    def _with_bodies(self, graph: Graph) -> Iterator[Graph]:
        """Yields a graph and, recursively, the bodies of its control flow."""
        yield graph
        for inner in graph.find_nodes(op="get_attr"):
            if (body := self.tracer.bodies.get(str(inner.target))) is not None:
                yield from self._with_bodies(body)


def _target_name(target: Any) -> str:
    """Returns the name of a call's target in messages: an operator as torch prints it, or a function's full name."""
    return f"{target.__module__}.{target.__name__}" if isinstance(target, FunctionType) else str(target)


def _list_unsupported(unsupported: dict[str, list[Node]]) -> str:
    """Returns the message that lists all operators without a translation, with their number of calls."""
    lines = []
    for target, nodes in sorted(unsupported.items()):
        where = source_line(nodes[0])
        lines.append(
            f"  {target}: {len(nodes)} call{'s' * (len(nodes) > 1)}" + (f", first at {where}" if where else "")
        )
    return (
        "These operators have neither a translation nor a decomposition. Give each a translation in "
        "custom_translation_table, or write the model without it:\n" + "\n".join(lines)
    )
