"""Decomposition: calls without a translation → calls with one.

The graph as a whole is never traced again: each call is replaced alone, and equal calls by copies of one traced graph.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.fx_nodes import (
    FlatCall,
    describe,
    fake_mode,
    fake_results,
    is_effect,
    is_symbolic,
    makes_symbols,
    meta_arguments,
    replace,
    source_line,
    splice,
)
from fx_onnx.aten.tracing.guard_check import refuse_guards, undone_guards
from fx_onnx.aten.tracing.replacement_tracer import ReplacementTracer
from fx_onnx.decompositions import load
from fx_onnx.decompositions.registry import DECOMPOSITIONS
from fx_onnx.extension_points.rooms import TABLE, find
from fx_onnx.extension_points.translation_table import Translation, TranslationTable
from fx_onnx.messages.errors import TranslationError, UnsupportedOperatorError
from fx_onnx.messages.progress import report_progress
from fx_onnx.sizes.size_text import shape_text
from fx_onnx.sizes.symbolic_sizes import same_where_static
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import OpOverload, has_composite_kernel, torch_decompositions

_SCALARS = {"number", "float", "bool", "Optional[number]", "Optional[float]"}


def decompose(
    program: AtenProgram, table: TranslationTable, own: Mapping[Any, Callable[..., Any]] | None = None
) -> AtenProgram:
    """Decomposes every call that ``table`` does not translate; rewrites the graphs in place.

    A call without a decomposition stays if the table has a fallback for it.

    Args:
        program: the functionalized program.
        table: the translations.
        own: the decompositions of operators that only this program has, by target.

    Raises:
        UnsupportedOperatorError: some operators have neither a translation nor a decomposition; the message lists all.
        TranslationError: a decomposition fails, or specializes a symbolic size.
    """
    return decompose_calls(
        program,
        lambda node: needs_decomposition(node, table),
        lambda node: table.fall_back(node.target) is not None,
        own,
    )


def needs_decomposition(node: Node, table: TranslationTable) -> bool:
    """Returns whether a node is a call that the table does not translate."""
    if node.op != "call_function" or (node.target not in table and (is_symbolic(node) or is_effect(node))):
        return False
    if node.target is operator.getitem:
        return False
    return find_translation(node, table) is None


def find_translation(node: Node, table: TranslationTable) -> Translation | None:
    """Returns the translation that supports a call; None if the call must be decomposed.

    Raises:
        TranslationError: a user's translation decides by the example's value of a dynamic size.
    """
    entry = table.find_for_all(node.target)
    if entry is not None:
        return entry
    entry = table.get(node.target)
    if entry is None or entry.declines is None:
        if not _takes_symbolic_scalar(node):
            return table.find(node.target, *meta_arguments(node))
        with undone_guards(fake_mode(node.graph)) as guards:
            translation = table.find(node.target, *meta_arguments(node))
        return None if guards else translation
    with refuse_guards(fake_mode(node.graph), node, "translated"):
        return table.find(node.target, *meta_arguments(node), fake_results(node))


def _takes_symbolic_scalar(node: Node) -> bool:
    """Returns whether a number of a call that is no size, such as the order of a norm, is symbolic."""
    if not isinstance(node.target, OpOverload):
        return False
    return any(
        isinstance(node.args[index] if index < len(node.args) else node.kwargs.get(name), Node)
        for index, name in _scalars(node.target)
    )


@functools.cache
def _scalars(operator: OpOverload) -> tuple[tuple[int, str], ...]:
    """Returns the places and the names of the arguments of an operator that are numbers and no sizes."""
    arguments = enumerate(operator._schema.arguments)
    return tuple((index, argument.name) for index, argument in arguments if str(argument.type) in _SCALARS)


# ---------------------------------------------------------------- the decomposition of one call

_MAX_RECURSION = 2
"""A decomposition may contain its own operator, on simpler arguments, this many times before it counts as endless."""


_WRONG_FAKE_RESULTS = ("quantized_decomposed::choose_qparams_per_token",)
"""Operators of which torch's fake results have other dtypes than the real ones.

choose_qparams_per_token returns two float32 tensors, where the fake ones are float64 and int64.
"""


def decompose_calls(
    program: AtenProgram,
    needed: Callable[[Node], bool],
    may_stay: Callable[[Node], bool] = lambda node: False,
    own: Mapping[Any, Callable[..., Any]] | None = None,
) -> AtenProgram:
    """Decomposes every call for which ``needed`` returns True, recursively; rewrites the graphs in place.

    A call without a decomposition stays where ``may_stay`` returns True. ``own`` has decompositions of operators that
    only this program has.

    Raises:
        UnsupportedOperatorError: some of the calls have no decomposition; the message lists all operators.
        TranslationError: a decomposition fails, or specializes a symbolic size.
    """
    decomposer = _CallDecomposer(ReplacementTracer.of(program), needed, may_stay, own or {})
    for graph in program.graphs:
        decomposer.rewrite(graph, ())
    if decomposer.unsupported:
        error = UnsupportedOperatorError(_list_unsupported(decomposer.unsupported))
        error.operators = tuple(sorted(decomposer.unsupported))
        raise error
    return program


@dataclass
class _CallDecomposer:
    """Traces decompositions, each distinct call once, and puts them in place of the calls.

    Attributes:
        tracer: traces the decompositions.
        needed: returns whether a call must be decomposed.
        may_stay: returns whether a call without a decomposition may stay.
        own: the decompositions of operators that only this program has.
        memo: the key of a call → the graph that it decomposes to.
        unsupported: the operators without a decomposition, each with its calls.
    """

    tracer: ReplacementTracer
    needed: Callable[[Node], bool]
    may_stay: Callable[[Node], bool]
    own: Mapping[Any, Callable[..., Any]]
    memo: dict[Hashable, Graph] = field(default_factory=dict)
    unsupported: dict[str, list[Node]] = field(default_factory=dict)

    def rewrite(self, graph: Graph, ancestors: tuple[Any, ...]) -> None:
        """Replaces the calls in a graph that must be decomposed.

        Args:
            graph: the graph, rewritten in place.
            ancestors: the operators whose decompositions led to this graph, outermost first.
        """
        nodes = list(graph.nodes)
        for index, node in enumerate(nodes):
            if not ancestors:
                report_progress(index, len(nodes))
            if not self.needed(node):
                continue
            if _is_unread(node):  # such as the version of a library that is imported in the forward
                graph.erase_node(node)
            else:
                call = FlatCall.of(node)
                if (traced := self._decomposed(call, ancestors)) is not None:
                    _check_results(traced, node)
                    results, made = splice(graph, node, call.inputs, traced)
                    replace(graph, node, results, made)

    def _decomposed(self, call: FlatCall, ancestors: tuple[Any, ...]) -> Graph | None:
        """Returns the graph that a call decomposes to, fully decomposed; None if the call has no decomposition."""
        if call.key in self.memo:
            return self.memo[call.key]
        target = call.node.target
        own = self.own.get(target)
        decomposition = find_decomposition(target) if own is None else Decomposition(own, keeps_composites=True)
        is_endless = ancestors.count(target) > _MAX_RECURSION
        graph = None if decomposition is None or is_endless else self._trace(decomposition, call)
        if graph is None and self.may_stay(call.node):
            return None
        if graph is None:
            self.unsupported.setdefault(_target_name(target), []).append(call.node)
            return None
        for body in list(self._with_bodies(graph)):
            self.rewrite(body, (*ancestors, target))
        if not any(makes_symbols(inner) for inner in graph.nodes):
            self.memo[call.key] = graph
        return graph

    def _trace(self, decomposition: Decomposition, call: FlatCall) -> Graph | None:
        def decomposed(*values: Any) -> Any:
            args, kwargs = call.bind(values)
            return decomposition.function(*args, **kwargs)

        values = [node.meta["val"] for node in call.inputs]
        graph = self.tracer.trace(decomposed, values, call.node, decomposition.keeps_composites)
        if graph is not None:
            _cast_results(graph, call.node)
        return graph

    def _with_bodies(self, graph: Graph) -> Iterator[Graph]:
        """Yields a graph and, recursively, the bodies of its control flow."""
        yield graph
        for inner in graph.find_nodes(op="get_attr"):
            if (body := self.tracer.bodies.get(str(inner.target))) is not None:
                yield from self._with_bodies(body)


def _is_unread(node: Node) -> bool:
    """Returns whether an operator computes something, writes nothing, and nothing reads its results."""
    schema = node.target._schema if isinstance(node.target, OpOverload) else None
    return schema is not None and not node.users and bool(schema.returns) and not schema.is_mutable


def _cast_results(graph: Graph, node: Node) -> None:
    """Casts the floating-point results of a traced decomposition to the dtypes of the call's results.

    For example, torch's native_layer_norm computes the mean of a half-precision tensor in float32.
    """
    output = graph.output_node()
    results = list(_results(graph))
    for index, expected in enumerate(_expected_results(node)[: len(results)]):
        traced = results[index].meta.get("val") if isinstance(results[index], Node) else None
        if not isinstance(traced, torch.Tensor) or not isinstance(expected, torch.Tensor):
            continue
        if traced.dtype != expected.dtype and traced.is_floating_point() and expected.is_floating_point():
            with graph.inserting_before(output):
                cast = graph.call_function(aten._to_copy.default, (results[index],), {"dtype": expected.dtype})
            cast.meta = {**results[index].meta, "val": traced.to(expected.dtype)}
            results[index] = cast
    output.args = (results if isinstance(output.args[0], (list, tuple)) else results[0],)


def _check_results(graph: Graph, node: Node) -> None:
    """Compares those results of a decomposition that are used with the results of the call.

    Raises:
        TranslationError: a dtype, a rank or a static size differs.
    """
    several = isinstance(node.meta["val"], (list, tuple))
    used = {user.args[1] for user in node.users if user.users} if several else {0}
    for index, (result, expected) in enumerate(zip(_results(graph), _expected_results(node), strict=False)):
        actual = result.meta.get("val") if isinstance(result, Node) else None
        if index not in used or not isinstance(actual, torch.Tensor) or not isinstance(expected, torch.Tensor):
            continue
        if actual.dtype != expected.dtype or not same_where_static(actual.shape, expected.shape):
            raise TranslationError(
                f"The decomposition returns {_type_text(actual)} where the operator returns {_type_text(expected)}: "
                f"{describe(node)}."
            )


def _expected_results(node: Node) -> Sequence[Any]:
    """Returns the fake results of a call; none if they have other dtypes than the real results."""
    name = node.target._schema.name if isinstance(node.target, OpOverload) else ""
    return () if name in _WRONG_FAKE_RESULTS else fake_results(node)


def _results(graph: Graph) -> Sequence[Any]:
    """Returns the results of a graph as a sequence, also if there is one."""
    results: Any = graph.output_node().args[0]
    return results if isinstance(results, (list, tuple)) else (results,)


def _type_text(tensor: torch.Tensor) -> str:
    """Returns the dtype and the shape of a fake tensor as text, for example ``float32[2, ?]``."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{shape_text(tensor.shape)}"


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


# ---------------------------------------------------------------- the decompositions: the package's, then PyTorch's


class Decomposition(NamedTuple):
    """A decomposition of an operator.

    Attributes:
        function: computes the operator from simpler ones, with the operator's parameters.
        keeps_composites: whether composite operators (CompositeImplicitAutograd) such as linear stay whole in its
            trace. An operator that is itself composite is decomposed by a trace that keeps none.
    """

    function: Callable[..., Any]
    keeps_composites: bool


@functools.cache
def find_decomposition(target: Any) -> Decomposition | None:
    """Returns the decomposition of ``target``: the package's own or else PyTorch's; None if there is none."""
    name = target._schema.name if isinstance(target, OpOverload) else None
    if name is not None and name in TABLE["decompositions"]:
        find("decompositions", name)  # registers it
    else:
        load(name)
    if (own := DECOMPOSITIONS.get(target) or DECOMPOSITIONS.get(name)) is not None:
        return Decomposition(own, True)
    if not isinstance(target, OpOverload):
        return None
    if has_composite_kernel(target):
        return Decomposition(target, False)
    function = _torch_decompositions().get(target)
    return None if function is None else Decomposition(function, True)


@functools.cache
def _torch_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Returns PyTorch's decompositions, including those of ``torch.onnx.ops``."""
    return {**torch_decompositions(), **torch.onnx.ops.aten_decompositions()}
