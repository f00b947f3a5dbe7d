"""Nodes without a translation → nodes with one, node by node.

The graph is never re-traced as a whole. A node that the table cannot say is traced alone, with its own fake inputs,
through its decomposition, and the result is spliced in its place; equal calls are traced once.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, NamedTuple, cast

import sympy
import torch
import torch.fx
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate

from fx_onnx.aten.functionalize import AtenProgram, functional_graph
from fx_onnx.aten.tracing.fake_tensors import size_of
from fx_onnx.aten.tracing.tracer import Recording, record
from fx_onnx.core import metadata, symbolic_sizes
from fx_onnx.core.errors import TranslationError, UnsupportedOperatorError
from fx_onnx.core.torch_private import (
    CHECKS,
    FakeTensor,
    FakeTensorMode,
    OpOverload,
    has_composite_kernel,
    pytree,
    size_oblivious,
    torch_decompositions,
)
from fx_onnx.core.translation_table import Table
from fx_onnx.decompositions import DECOMPOSITIONS

aten = torch.ops.aten

# Calls that say something to torch.export or the allocator and compute nothing.
_EFFECTS = frozenset(
    {
        aten._assert_scalar.default, aten._assert_async.msg, aten._assert_async.default,
        aten._assert_tensor_metadata.default, aten._linalg_check_errors.default, aten.sym_constrain_range.default,
        aten.sym_constrain_range_for_size.default, *CHECKS,
    }
)  # fmt: skip


def meta_arguments(node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of an FX node with fake tensors and symbolic numbers in the place of nodes."""

    def meta(argument: Any) -> Any:
        return argument.meta.get("val", argument) if isinstance(argument, Node) else argument

    return map_aggregate(node.args, meta), map_aggregate(dict(node.kwargs), meta)


def is_symbolic(node: Node) -> bool:
    """Whether the node computes a symbolic number, which is emitted when it is used, from its expression."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))


def is_effect(node: Node) -> bool:
    """Whether the node computes nothing: an assertion or a hint to torch.export."""
    return node.target in _EFFECTS or (isinstance(node.target, OpOverload) and "assert" in node.target.__name__)


def decompose(program: AtenProgram, table: Table) -> AtenProgram:
    """The program in operators that ``table`` translates; its graph is rewritten in place.

    Raises:
        UnsupportedOperatorError: some operators have neither a translation nor a decomposition; all are listed.
    """
    return decompose_where(program, lambda node: needs_decomposition(node, table))


def decompose_where(program: AtenProgram, needed: Callable[[Node], bool]) -> AtenProgram:
    """The program without calls of which ``needed`` says that they must be decomposed; rewritten in place.

    Raises:
        UnsupportedOperatorError: some of them have no decomposition; all are listed.
    """
    tracer = _Tracer(program.constants, program.bodies, fake_mode(program.graph), needed)
    unsupported: dict[str, list[Node]] = {}
    for graph in program.graphs:
        for node in list(graph.nodes):
            if needed(node):
                _replace(node, tracer, unsupported, ())
    if unsupported:
        raise UnsupportedOperatorError(_describe(unsupported))
    return program


def needs_decomposition(node: Node, table: Table) -> bool:
    """Whether an FX node calls something that the table cannot say."""
    if node.op != "call_function" or (node.target not in table and (is_symbolic(node) or is_effect(node))):
        return False
    if node.target is operator.getitem:
        return False
    return table.find(node.target, *meta_arguments(node)) is None


@dataclass
class Tracer:
    """Traces functions of an FX node's inputs into graphs.

    Attributes:
        constants: receives the tensors that the functions make, under names of ours.
        bodies: receives the bodies of the control flow in them, likewise.
        fake_mode: the mode of the inputs' fake tensors.
    """

    constants: dict[str, torch.Tensor]
    bodies: dict[str, Graph]
    fake_mode: FakeTensorMode

    def function_graph(
        self, function: Callable[..., Any], values: Sequence[Any], node: Node, keeps_composites: bool
    ) -> Graph | None:
        """The functional graph of ``function(*values)``, which stands for ``node``; None if it needs more than ATen."""
        known_guards = len(self._guards())
        try:
            # size-oblivious: that a size is neither 0 nor 1 is not a question that a decomposition asked
            with size_oblivious():
                recording = record(function, _distinct(values), self.fake_mode, keeps_composites)
        except Exception as error:
            raise TranslationError(
                f"{described(node)} cannot be decomposed: {type(error).__name__}: {error}"
            ) from error
        self._check_guards(known_guards, node)
        return self._own(recording, node)

    def _own(self, recording: Recording, node: Node) -> Graph | None:
        """A recorded graph, functional, with what its ``get_attr`` nodes name among our names."""
        graph = recording.graph
        if any(getattr(inner.target, "namespace", "") == "prims" for inner in graph.nodes):
            return None  # PyTorch's way out of ATen is not ours
        if any(isinstance(n.target, OpOverload) and n.target._schema.is_mutable for n in graph.nodes):
            graph = functional_graph(graph)
        graph.eliminate_dead_code()
        for inner in graph.find_nodes(op="get_attr"):
            named = recording.named[str(inner.target)]
            if isinstance(named, Recording):
                body = self._own(named, node)
                if body is None:
                    return None
                inner.target = f"body_{len(self.bodies)}"
                self.bodies[inner.target] = body
            else:
                inner.target = f"constant_tensor_{len(self.constants)}"
                self.constants[inner.target] = named
        mark(graph, node)
        return graph

    def _guards(self) -> list[Any]:
        """What torch assumed of symbolic sizes so far."""
        return self.fake_mode.shape_env.guards if self.fake_mode.shape_env is not None else []

    def _check_guards(self, known: int, node: Node) -> None:
        """A decomposition that asked a question about a symbolic size is right for the example's answer only."""
        if new := [str(guard.expr) for guard in self._guards()[known:] if not _is_precondition(guard.expr)]:
            raise TranslationError(f"{described(node)} can only be decomposed where {' and '.join(new)}.")


@dataclass
class _Tracer(Tracer):
    """Traces decompositions, each distinct call once; ``needed`` says which calls must be taken apart further."""

    needed: Callable[[Node], bool]
    memo: dict[Any, Graph] = field(default_factory=dict)

    def trace(self, node: Node, unsupported: dict[str, list[Node]], ancestors: tuple[Any, ...]) -> Graph | None:
        """The graph that the call decomposes to, none of whose nodes must be too; None if it cannot be decomposed."""
        leaves, spec = pytree.tree_flatten((node.args, dict(node.kwargs)))
        inputs = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Node)))
        key = (node.target, spec, tuple(argument_key(leaf, inputs) for leaf in leaves))
        if key in self.memo:
            return self.memo[key]
        found = decomposition(node.target)
        graph = None
        if found is not None and ancestors.count(node.target) <= 2:
            graph = self._trace(found, node, leaves, spec, inputs)
        if graph is None:
            unsupported.setdefault(_name(node.target), []).append(node)
            return None
        for each in list(self._with_bodies(graph)):
            for inner in list(each.nodes):
                if self.needed(inner):
                    _replace(inner, self, unsupported, (*ancestors, node.target), each)
        if not any(makes_symbols(inner) for inner in graph.nodes):
            self.memo[key] = graph
        return graph

    def _with_bodies(self, graph: Graph) -> Iterator[Graph]:
        """The graph, and the bodies of the control flow in it."""
        yield graph
        for inner in graph.find_nodes(op="get_attr"):
            if (body := self.bodies.get(str(inner.target))) is not None:
                yield from self._with_bodies(body)

    def _trace(
        self, found: Decomposition, node: Node, leaves: list[Any], spec: Any, inputs: list[Node]
    ) -> Graph | None:
        places = [inputs.index(leaf) if isinstance(leaf, Node) else None for leaf in leaves]

        def call(*values: Any) -> Any:
            bound = [leaf if i is None else values[i] for leaf, i in zip(leaves, places, strict=True)]
            args, kwargs = pytree.tree_unflatten(bound, spec)
            return found.function(*args, **kwargs)

        return self.function_graph(call, [n.meta["val"] for n in inputs], node, found.keeps_composites)


def _is_precondition(guard: Any) -> bool:
    """Whether a guard says that two sizes are equal that the operator itself needs equal, as keys and values have."""
    return isinstance(guard, sympy.Eq) and all(isinstance(side, sympy.Symbol) for side in guard.args)


class Decomposition(NamedTuple):
    """A function with an operator's parameters; whether its trace keeps operators such as linear and matmul whole.

    An operator that torch itself composes (CompositeImplicitAutograd) is only taken apart where none is kept.
    """

    function: Callable[..., Any]
    keeps_composites: bool


@functools.cache
def decomposition(target: Any) -> Decomposition | None:
    """How ``target`` is said in simpler operators: our way, or else PyTorch's own; None where there is none."""
    name = target._schema.name if isinstance(target, OpOverload) else None
    if (ours := DECOMPOSITIONS.get(target) or DECOMPOSITIONS.get(name)) is not None:
        return Decomposition(ours, True)
    if not isinstance(target, OpOverload):
        return None
    if has_composite_kernel(target):
        return Decomposition(target, False)
    function = _torch_decompositions().get(target)
    return None if function is None else Decomposition(function, True)


@functools.cache
def _torch_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """PyTorch's decompositions, and those of torch.onnx.ops, which have their own table."""
    return {**torch_decompositions(), **torch.onnx.ops.aten_decompositions()}


def fake_mode(graph: Graph) -> FakeTensorMode:
    """The mode in which decompositions make new tensors: that of the capture; a new one if it made no tensors."""
    values = (node.meta.get("val") for node in graph.nodes)
    return next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None) or FakeTensorMode()


def argument_key(leaf: Any, inputs: list[Node]) -> Any:
    """What of an argument decides the trace: of a tensor its dtype, sizes and strides."""
    if not isinstance(leaf, Node):
        return type(leaf), repr(leaf)  # by its text: 0.0 equals -0.0, and 1 equals True
    value = leaf.meta.get("val")
    if isinstance(value, torch.Tensor):
        return inputs.index(leaf), value.dtype, tuple(map(size_of, (*value.shape, *value.stride())))
    return inputs.index(leaf), symbolic_sizes.expression(value) if isinstance(
        value, symbolic_sizes.SymbolicNumber
    ) else repr(value)


def makes_symbols(node: Node) -> bool:
    """Whether the node brings new data-dependent sizes into being, which two calls must not share."""
    return bool(node.meta.get("unbacked_bindings"))


def _distinct(values: Sequence[Any]) -> list[Any]:
    """The values, each a tensor of its own: two calls traced once share fake tensors, which a recording takes for one.

    None of them is lazily conjugated or negated: then ``view_as_real`` and such refuse it.
    """
    found: list[Any] = []
    known: set[int] = set()
    for value in values:
        if isinstance(value, torch.Tensor):
            if id(value) in known:
                value = value.new_empty_strided(value.shape, value.stride())
            value = value.resolve_conj().resolve_neg()
            known.add(id(value))
        found.append(value)
    return found


def mark(graph: Graph, source: Node) -> None:
    """Gives every node of a traced graph the module stack and source line of the call it comes from."""
    kept = {key: source.meta[key] for key in ("nn_module_stack", "stack_trace") if key in source.meta}
    for node in graph.nodes:
        for key in ("nn_module_stack", "stack_trace"):
            node.meta.pop(key, None)
        node.meta.update(kept)


def _replace(
    node: Node,
    tracer: _Tracer,
    unsupported: dict[str, list[Node]],
    ancestors: tuple[Any, ...],
    graph: Graph | None = None,
) -> None:
    """Puts what the node decomposes to in its place."""
    traced = tracer.trace(node, unsupported, ancestors)
    if traced is None:
        return
    graph = node.graph if graph is None else graph
    inputs = list(dict.fromkeys(a for a in pytree.tree_leaves((node.args, dict(node.kwargs))) if isinstance(a, Node)))
    results, made = splice(graph, node, inputs, traced)
    use_instead(graph, node, results, made)


def splice(graph: Graph, node: Node, inputs: Sequence[Node], traced: Graph) -> tuple[Any, dict[Node, None]]:
    """Copies ``traced``, a function of ``inputs`` that stands for ``node``, before it.

    Returns:
        what the traced graph returns, and the new nodes in order.
    """
    env: dict[Node, Any] = {}
    results: Any = None
    source = {
        metadata.SOURCE_NAME: node.meta.get(metadata.SOURCE_NAME, node.name),
        metadata.SOURCE_TEXT: node.meta.get(metadata.SOURCE_TEXT) or str(node.format_node()),
        metadata.SOURCE_TARGET: node.meta.get(metadata.SOURCE_TARGET) or str(node.target),
    }
    stack = {key: node.meta[key] for key in ("nn_module_stack", "stack_trace") if key in node.meta}
    made: dict[Node, None] = {}
    with graph.inserting_before(node):
        placeholders = iter(inputs)
        for inner in traced.nodes:
            if inner.op == "placeholder":
                env[inner] = next(placeholders)
            elif inner.op == "output":
                results = map_aggregate(inner.args[0], lambda a: env.get(a, a) if isinstance(a, Node) else a)
            else:
                env[inner] = graph.node_copy(inner, env.__getitem__)
                env[inner].meta = {**inner.meta, **stack, **source}
                made[env[inner]] = None
    return results, made


def use_instead(graph: Graph, node: Node, results: Any, made: dict[Node, None]) -> None:
    """Lets the users of ``node`` use ``results``; each result takes over the name of what it stands for."""
    if isinstance(results, (list, tuple)):
        if not isinstance(node.meta.get("val"), torch.Tensor):
            for user in list(node.users):  # each takes one result out, which may be a list itself
                use_instead(graph, user, results[cast(int, user.args[1])], made)
            graph.erase_node(node)
            return
        results = results[0]
    node.replace_all_uses_with(results)
    graph.erase_node(node)
    if results in made:
        del made[results]
        results.name = node.name
        results.meta = {**results.meta, metadata.SOURCE_NAME: node.name}


def _name(target: Any) -> str:
    """An operator as torch prints it; a function of torch's, which stands for a transform, by its name."""
    return f"{target.__module__}.{target.__name__}" if isinstance(target, FunctionType) else str(target)


def _describe(unsupported: dict[str, list[Node]]) -> str:
    """All operators without a translation, each with its count, its first source line and what to do."""
    lines = []
    for target, nodes in sorted(unsupported.items()):
        where = source_line(nodes[0])
        lines.append(
            f"  {target}: {len(nodes)} call{'s' * (len(nodes) > 1)}" + (f", first at {where}" if where else "")
        )
    return (
        "These operators have neither a translation nor a decomposition; give each a translation in "
        "custom_translation_table or write the model without it:\n" + "\n".join(lines)
    )


def source_line(node: Node) -> str:
    """``file:line: code`` of the last frame of the user's code that made the node; empty where torch kept none."""
    frames = [f.strip() for f in (node.meta.get("stack_trace") or "").split("File ") if f.strip()]
    own = [f for f in frames if "site-packages/torch/" not in f]
    if not frames:
        return ""
    place, _, code = (own or frames)[-1].partition("\n")
    path, _, rest = place.partition(", line ")
    number = rest.partition(",")[0]
    return f"{path.strip(chr(34))}:{number}: {code.strip()}"


def described(node: Node) -> str:
    """A call in short, for error messages: the FX node, its target, its arguments, and the user's source line."""
    where = source_line(node)
    args = ", ".join(_summary(a) for a in (*node.args, *node.kwargs.values()))
    return f"{node.name} = {node.target}({args})" + (f" (at {where})" if where else "")


def _summary(argument: Any) -> str:
    if not isinstance(argument, Node):
        return repr(argument)
    value = argument.meta.get("val")
    if isinstance(value, torch.Tensor):
        sizes = ",".join(str(size) for size in value.shape)
        return f"{argument.name}: {str(value.dtype).removeprefix('torch.')}[{sizes}]"
    return f"{argument.name}: {value}"
