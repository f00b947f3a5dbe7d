"""Lowering of complex tensors to pairs of real tensors.

ONNX has almost no operators on complex numbers. Every FX node with a complex value becomes two nodes: its real and its
imaginary part. A complex input, weight or output of the program becomes one real tensor with a last axis of size 2.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate

import fx_onnx.complex_tensors.complex_fourier  # registers pair functions, as the next ones do
import fx_onnx.complex_tensors.complex_linalg
import fx_onnx.complex_tensors.complex_random
import fx_onnx.torch_internals.custom_ops  # noqa: F401  defines operators that the pair functions call
from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.decompose import decompose_calls
from fx_onnx.aten.fx_nodes import (
    FlatCall,
    describe,
    fake_results,
    has_complex,
    is_complex,
    is_effect,
    is_symbolic,
    makes_complex,
    makes_symbols,
    origin,
    splice,
)
from fx_onnx.aten.tracing.fake_tensors import FakeTensorFactory
from fx_onnx.aten.tracing.replacement_tracer import ReplacementTracer
from fx_onnx.complex_tensors.complex_parts import BY_PARTS, CREATING, OPERANDS, SELECTORS, by_parts, in_dtype, name_of
from fx_onnx.complex_tensors.complex_reductions import ZERO_TESTS, is_nonzero
from fx_onnx.decompositions.registry import COMPLEX, Complex
from fx_onnx.messages.errors import TranslationError
from fx_onnx.onnx_model import metadata
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import HigherOrderOperator, pytree

_PARTS = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
# The FX metadata key of nodes that this stage makes; those without users are erased.
_MADE = "fx_onnx.part"


def lower_complex(program: AtenProgram) -> AtenProgram:
    """Replaces every complex node by a pair of real nodes; rewrites the graphs in place.

    Raises:
        UnsupportedOperatorError: operators have neither a pair function nor a decomposition; the message lists all.
        TranslationError: a decomposition fails.
    """
    decompose_calls(program, lambda n: _is_complex_call(n) and not _is_control_flow(n) and _pair_function(n) is None)
    tracer = ReplacementTracer.of(program)
    memo: dict[Hashable, Graph] = {}
    for graph in program.graphs:
        _PairRewriter(program, graph, tracer, memo).run()
    return program


def _is_complex_call(node: Node) -> bool:
    """Returns whether a node is a call with complex arguments or results, or with complex values inside it."""
    if node.op != "call_function" or node.target is operator.getitem or is_symbolic(node) or is_effect(node):
        return False
    return makes_complex(node) or any(map(has_complex, node.all_input_nodes))


def _is_control_flow(node: Node) -> bool:
    return isinstance(node.target, HigherOrderOperator)


def _is_registered(target: Any) -> bool:
    """Returns whether a pair function is registered for the operator or for all overloads of its name."""
    return target in COMPLEX or getattr(target, "overloadpacket", None) in COMPLEX


def _pair_function(node: Node) -> Callable[..., Any] | None:
    """Returns the pair function of a call: it takes pairs for complex tensors. None if the call must be decomposed."""
    target, name = node.target, name_of(node.target)
    if _is_registered(target):
        return COMPLEX.get(target) or COMPLEX[target.overloadpacket]  # type: ignore[union-attr]
    if name in ZERO_TESTS:
        return _zero_test(target)
    if (name in BY_PARTS or name in CREATING) and has_complex(node):
        return by_parts(target, _part_dtype(node))
    return _cast if name in _CASTS else None


def _part_dtype(node: Node) -> torch.dtype:
    """Returns the dtype of the two parts of a node's complex value."""
    value = node.meta["val"]
    return _PARTS[next(v.dtype for v in pytree.tree_leaves(value) if is_complex(v))]


def _zero_test(target: Any) -> Callable[..., Any]:
    """Returns the pair function of an operator that only asks which elements are zero, such as ``logical_and``."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*map(is_nonzero, args), **kwargs)

    return call


# Operators that convert a tensor to another dtype.
_CASTS = frozenset(
    {
        "to", "_to_copy", "type_as", "cdouble", "cfloat", "chalf", "double", "float", "half", "int", "long", "short",
        "byte", "char", "bool",
    }
)  # fmt: skip


def _cast(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Returns the tensor itself, because the caller casts to the dtype of the result."""
    return self


class _PairRewriter:
    """Rewrites one graph, in which all calls with complex numbers have a pair function.

    Attributes:
        pairs: complex node → its two parts. The complex node stays in the graph until the end.
        views: complex placeholder or result of control flow → its real view, with a last axis of size 2. In the end
            the node gets this value.
        joined: complex node → the node that stacks its parts to a real view.
        replaced: the nodes to erase in the end, in order.
        memo: the key of a call → the graph of its pair function, shared by all graphs of the program.
    """

    def __init__(
        self, program: AtenProgram, graph: Graph, tracer: ReplacementTracer, memo: dict[Hashable, Graph]
    ) -> None:
        self.program, self.graph, self.tracer, self.memo = program, graph, tracer, memo
        self.pairs: dict[Node, Complex] = {}
        self.views: dict[Node, torch.Tensor] = {}
        self.joined: dict[Node, Node] = {}
        self.replaced: dict[Node, None] = {}

    def run(self) -> None:
        """Splits every complex node, joins complex results of the graph, and erases unused nodes."""
        for node in list(self.graph.nodes):
            if node.op in ("placeholder", "get_attr"):
                if has_complex(node):
                    self._split_view(node)
            elif node.op == "output":
                self._output(node)
            elif node.op == "call_function" and node not in self.replaced:
                if _is_complex_call(node):
                    split = self._control_flow if _is_control_flow(node) else self._call
                    split(node)
                elif any(argument in self.pairs for argument in node.all_input_nodes):
                    self._use_real_part(node)
        for node in reversed(self.replaced):
            self.graph.erase_node(node)
        for node, view in self.views.items():
            node.meta["val"] = view
        _use_whole_views(self.graph)
        for node in reversed(list(self.graph.nodes)):
            if not node.users and _MADE in node.meta:
                self.graph.erase_node(node)

    # ---------------------------------------------------------------- inputs, outputs and control flow

    def _split_view(self, node: Node) -> None:
        """Takes the parts of a placeholder, a constant or a result of control flow out of its real view."""
        view, *values = (self._fake(node.meta["val"], *more) for more in ((2,), (), ()))
        following = node.next
        while following.op == "placeholder":
            following = following.next
        if node.op == "get_attr":
            self.replaced[node] = None
            names = self._constant_parts(str(node.target))
            with self.graph.inserting_before(node):
                parts = [self.graph.create_node("get_attr", name) for name in names]
        else:
            self.views[node] = view
            with self.graph.inserting_before(following):
                parts = [self.graph.call_function(aten.select.int, (node, -1, index)) for index in (0, 1)]
        self.pairs[node] = Complex(*(self._made(part, node, val) for part, val in zip(parts, values, strict=True)))

    def _fake(self, value: torch.Tensor, *more: int) -> torch.Tensor:
        """Returns the fake tensor of one part; of the real view if ``more`` is 2. A real tensor keeps its dtype."""
        return FakeTensorFactory.of(self.tracer.fake_mode).like(value, _PARTS.get(value.dtype), *more)

    def _constant_parts(self, name: str) -> list[str]:
        """Adds the parts of a constant to the program and returns their names. Other nodes may still use it whole."""
        names = [f"{name}_real", f"{name}_imag"]
        tensor = torch.view_as_real(self.program.constants[name].resolve_conj())
        for index, part in enumerate(names):
            self.program.constants[part] = tensor[..., index].contiguous()
        return names

    def _made(self, part: Node, node: Node, value: Any) -> Any:
        """Gives a new node its value and the origin of the complex node, and returns it."""
        part.meta = {**origin(node), "val": value, metadata.SOURCE_NAME: node.name, _MADE: True}
        return part

    def _use_real_part(self, node: Node) -> None:
        """Lets a size query read the real part, which has the same sizes; erases an assertion."""
        if is_effect(node):
            self.graph.erase_node(node)
            return
        for argument in node.all_input_nodes:
            if argument in self.pairs:
                node.replace_input_with(argument, self.pairs[argument].real)  # type: ignore[arg-type]

    def _output(self, node: Node) -> None:
        """Lets the graph return the real views of complex results, under the names of the results."""
        node.args = (map_aggregate(node.args[0], lambda a: self._join(a, node)),)
        for argument, stack in self.joined.items():
            stack.name = argument.name

    def _control_flow(self, node: Node) -> None:
        """Passes complex operands to control flow, and takes its complex results, as real views."""
        node.args = map_aggregate(node.args, lambda a: self._join(a, node))
        for user in list(node.users):
            if has_complex(user):
                self._split_view(user)
        node.meta["val"] = tuple(self._fake(v, 2) if is_complex(v) else v for v in node.meta["val"])

    def _join(self, argument: Any, before: Node) -> Any:
        """Returns the real view of a complex node, stacked in front of ``before``; any other argument unchanged."""
        if not isinstance(argument, Node) or argument not in self.pairs:
            return argument
        if argument not in self.joined:
            pair: Any = self.pairs[argument]
            with self.graph.inserting_before(before):
                stack = self.graph.call_function(aten.stack.default, ([*pair], -1))
            self.joined[argument] = self._made(stack, argument, self._fake(argument.meta["val"], 2))
        return self.joined[argument]

    # ---------------------------------------------------------------- calls

    def _call(self, node: Node) -> None:
        """Replaces a call by its pair function, traced with a pair for each complex argument."""
        if self._acts_on_each_part(node):
            self._call_each_part(node)
            return
        call = FlatCall.of(node)
        flat: list[Any] = [part for n in call.inputs for part in self.pairs.get(n, (n,))]
        traced = self.memo.get(call.key)
        if traced is None:
            function = self._on_pairs(call)
            traced = self.tracer.trace(function, [n.meta["val"] for n in flat], node, keeps_composites=True)
            if traced is None:
                raise TranslationError(
                    f"{describe(node)} of complex tensors becomes operators of torch's `prims`, which have no "
                    "translation; compute with the real and the imaginary part, as torch.view_as_real returns them."
                )
            if not any(map(makes_symbols, traced.nodes)):
                self.memo[call.key] = traced
        results, made = splice(self.graph, node, flat, traced)
        for new in made:
            new.meta[_MADE] = True
        flat_results = iter(results)
        grouped = [
            Complex(next(flat_results), next(flat_results)) if fake.is_complex() else next(flat_results)
            for fake in fake_results(node)
        ]
        self.replaced[node] = None
        if isinstance(node.meta["val"], torch.Tensor):
            self._replace(node, grouped[0], made)
        else:
            for user in list(node.users):
                self._replace(user, grouped[user.args[1]], made)  # type: ignore[index]

    def _acts_on_each_part(self, node: Node) -> bool:
        """Returns whether the call on each part gives the parts of the result: it only moves or adds elements."""
        if name_of(node.target) not in BY_PARTS or not has_complex(node) or _is_registered(node.target):
            return False
        names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
        for name, value in [*zip(names, node.args, strict=False), *node.kwargs.items()]:
            for leaf in pytree.tree_leaves(value):
                real = isinstance(leaf, Node) and leaf not in self.pairs and isinstance(leaf.meta["val"], torch.Tensor)
                number = name in OPERANDS and not isinstance(leaf, Node)
                if isinstance(leaf, torch.dtype) or (real and name not in SELECTORS) or number:
                    return False
        return True

    def _call_each_part(self, node: Node) -> None:
        """Emits the call once for each part, without a trace, which would add guards on sizes again."""
        source = {metadata.SOURCE_NAME: node.name, metadata.SOURCE_TEXT: str(node.format_node())}
        with self.graph.inserting_before(node):
            calls = []
            for index in (0, 1):
                args, kwargs = map_aggregate(
                    (node.args, dict(node.kwargs)),
                    lambda a, index=index: self.pairs[a][index] if a in self.pairs else a,  # type: ignore[misc]
                )
                call = self.graph.call_function(node.target, args, kwargs)  # type: ignore[arg-type]
                values = list(map(self._fake, fake_results(node)))
                single = isinstance(node.meta["val"], torch.Tensor)
                call.meta = {**node.meta, **source, "val": values[0] if single else values, _MADE: True}
                calls.append(call)
            self.replaced[node] = None
            if isinstance(node.meta["val"], torch.Tensor):
                self._replace(node, Complex(*calls), dict.fromkeys(calls))  # type: ignore[arg-type]
                return
            for user in list(node.users):
                items = [self.graph.call_function(operator.getitem, (call, user.args[1])) for call in calls]
                for item, call in zip(items, calls, strict=True):
                    item.meta = {**call.meta, "val": call.meta["val"][user.args[1]]}
                self._replace(user, Complex(*items), dict.fromkeys(items))  # type: ignore[arg-type]

    def _on_pairs(self, flat_call: FlatCall) -> Callable[..., Any]:
        """Returns a function of the flat real arguments that returns the call's flat real results."""
        function, expected = _pair_function(flat_call.node), fake_results(flat_call.node)

        def call(*values: Any) -> Any:
            rest = iter(values)
            bound = [Complex(next(rest), next(rest)) if n in self.pairs else next(rest) for n in flat_call.inputs]
            args, kwargs = flat_call.bind(bound)
            results = function(*args, **kwargs)  # type: ignore[misc]
            results = [results] if isinstance(results, (Complex, torch.Tensor)) else results
            return [part for result, fake in zip(results, expected, strict=True) for part in _as_expected(result, fake)]

        return call

    def _replace(self, node: Node, result: Any, made: dict[Node, None]) -> None:
        """Replaces a node by ``result``, a node or a pair. New nodes (``made``) get names derived from the node's."""
        self.replaced[node] = None
        names = (f"{node.name}_real", f"{node.name}_imag") if isinstance(result, Complex) else (node.name,)
        for part, name in zip(result if isinstance(result, Complex) else (result,), names, strict=True):
            if part in made:
                del made[part]
                part.name = name
                part.meta = {**part.meta, metadata.SOURCE_NAME: name}
        if isinstance(result, Complex):
            self.pairs[node] = result
        else:
            node.replace_all_uses_with(result)


def _as_expected(result: Any, fake: torch.Tensor) -> list[torch.Tensor]:
    """Converts a result to the captured dtype: one tensor, or the two parts of a complex one."""
    if not fake.is_complex():
        if isinstance(result, Complex):
            result = is_nonzero(result) if fake.dtype == torch.bool else result.real
        return [in_dtype(result, fake.dtype)]
    dtype = _PARTS[fake.dtype]
    if not isinstance(result, Complex):
        return [in_dtype(result, dtype), torch.zeros_like(result, dtype=dtype)]
    return [in_dtype(part, dtype) for part in result]


def _use_whole_views(graph: Graph) -> None:
    """Replaces a stack of both parts of one real view by that view."""
    for node in graph.find_nodes(op="call_function", target=aten.stack.default):
        parts, axis = node.args[0], node.args[1] if len(node.args) > 1 else 0
        rank = node.meta["val"].dim()
        if axis % rank != rank - 1 or len(parts) != 2:
            continue
        sources = [_viewed(part, index) for index, part in enumerate(parts)]
        if sources[0] is None or sources[0] is not sources[1]:
            continue
        whole = sources[0]
        node.replace_all_uses_with(whole)
        graph.erase_node(node)


def _viewed(node: Any, index: int) -> Node | None:
    """Returns the real view of which ``node`` takes the part ``index``; None if it does not."""
    if not isinstance(node, Node) or node.target is not aten.select.int or node.args[2] != index:
        return None
    source: Any = node.args[0]
    value = source.meta["val"]
    return source if node.args[1] in (-1, value.dim() - 1) and value.shape[-1] == 2 else None
