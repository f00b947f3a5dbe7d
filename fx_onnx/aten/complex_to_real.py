"""Complex tensors → pairs of real ones.

ONNX has next to nothing for complex numbers. Every FX node with a complex value becomes two: its real and its imaginary
part. A complex input, weight or output of the program is one real tensor with a last axis of 2.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate

import fx_onnx.core.custom_ops  # noqa: F401  defines what the functions of pairs call
from fx_onnx.aten.decompose import (
    Tracer,
    argument_key,
    decompose_where,
    described,
    fake_mode,
    is_effect,
    is_symbolic,
    makes_symbols,
    splice,
)
from fx_onnx.aten.functionalize import AtenProgram
from fx_onnx.aten.tracing.fake_tensors import FakeTensorFactory
from fx_onnx.core import metadata
from fx_onnx.core.errors import TranslationError
from fx_onnx.core.torch_private import HigherOrderOperator, pytree
from fx_onnx.decompositions.complex_parts import BY_PARTS, CREATING, OPERANDS, SELECTORS, by_parts, in_dtype, name_of
from fx_onnx.decompositions.complex_reductions import OF_TRUTH, truth
from fx_onnx.decompositions.registry import COMPLEX, Complex

aten = torch.ops.aten

# Operators from real to real tensors that pass through complex ones.
_COMPLEX_INSIDE = frozenset(
    ["stft", "istft", "fft_irfft", "fft_irfft2", "fft_irfftn", "fft_hfft", "fft_hfft2", "fft_hfftn"]
)
_PARTS = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
# FX node metadata of ours: made here, and superfluous where nothing uses it.
_MADE = "fx_onnx.part"


def lower_complex(program: AtenProgram) -> AtenProgram:
    """The program with a pair of real nodes in the place of every complex one; its graphs are rewritten in place.

    Raises:
        UnsupportedOperatorError: operators are not known on complex numbers; all are listed.
        TranslationError: a decomposition failed.
    """
    if not any(_makes_complex(node) for graph in program.graphs for node in graph.nodes):
        return program
    decompose_where(program, lambda n: _is_concerned(n) and not _is_control_flow(n) and _pair_function(n) is None)
    tracer = Tracer(program.constants, program.bodies, fake_mode(program.graph))
    memo: dict[Any, Graph] = {}
    for graph in program.graphs:
        _Splitter(program, graph, tracer, memo).run()
    return program


def _is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_complex()


def _has_complex(node: Node) -> bool:
    """Whether a value of the node is complex."""
    value = node.meta.get("val")
    return any(map(_is_complex, value)) if isinstance(value, (list, tuple)) else _is_complex(value)


def _makes_complex(node: Node) -> bool:
    return _has_complex(node) or name_of(node.target) in _COMPLEX_INSIDE


def _is_concerned(node: Node) -> bool:
    """Whether a call takes or gives complex numbers."""
    if node.op != "call_function" or node.target is operator.getitem or is_symbolic(node) or is_effect(node):
        return False
    return _makes_complex(node) or any(map(_has_complex, node.all_input_nodes))


def _is_control_flow(node: Node) -> bool:
    return isinstance(node.target, HigherOrderOperator)


def _is_known(target: Any) -> bool:
    """Whether the operator, or all of that name, have a function of pairs."""
    return target in COMPLEX or getattr(target, "overloadpacket", None) in COMPLEX


def _pair_function(node: Node) -> Callable[..., Any] | None:
    """What computes the call from the parts of its arguments, or None: then it is decomposed."""
    target, name = node.target, name_of(node.target)
    if _is_known(target):
        return COMPLEX.get(target) or COMPLEX[target.overloadpacket]  # type: ignore[union-attr]
    if name in OF_TRUTH:
        return _of_truth(target)
    if (name in BY_PARTS or name in CREATING) and _has_complex(node):
        return by_parts(target, _part_dtype(node))
    return _cast if name in _CASTS else None


def _part_dtype(node: Node) -> torch.dtype:
    """The dtype of the parts of a node's complex value."""
    value = node.meta["val"]
    return _PARTS[next(v.dtype for v in pytree.tree_leaves(value) if _is_complex(v))]


def _of_truth(target: Any) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*map(truth, args), **kwargs)

    return call


# Operators that make another dtype of a tensor.
_CASTS = frozenset(
    {
        "to", "_to_copy", "type_as", "cdouble", "cfloat", "chalf", "double", "float", "half", "int", "long", "short",
        "byte", "char", "bool",
    }
)  # fmt: skip


def _cast(self: Any, *args: Any, **kwargs: Any) -> Any:
    """The tensor itself, for what follows casts to the dtype of the result."""
    return self


class _Splitter:
    """Rewrites one graph, all of whose calls on complex numbers have a function of pairs.

    Attributes:
        pairs: the parts of each complex node; the node itself stays until the end.
        views: the real view of each complex value that the graph is given, which its node becomes in the end.
        joined: the real view of complex nodes that are handed over as such.
        memo: call → its graph, of all graphs of the program.
    """

    def __init__(self, program: AtenProgram, graph: Graph, tracer: Tracer, memo: dict[Any, Graph]) -> None:
        self.program, self.graph, self.tracer, self.memo = program, graph, tracer, memo
        self.pairs: dict[Node, Complex] = {}
        self.views: dict[Node, torch.Tensor] = {}
        self.joined: dict[Node, Node] = {}
        self.replaced: dict[Node, None] = {}

    def run(self) -> None:
        """Splits every node, joins what the graph returns, and removes what is left."""
        for node in list(self.graph.nodes):
            if node.op in ("placeholder", "get_attr"):
                if _has_complex(node):
                    self._given(node)
            elif node.op == "output":
                self._output(node)
            elif node.op == "call_function" and node not in self.replaced:
                if _is_concerned(node):
                    split = self._control_flow if _is_control_flow(node) else self._call
                    split(node)
                elif any(argument in self.pairs for argument in node.all_input_nodes):
                    self._ask(node)
        for node in reversed(self.replaced):
            self.graph.erase_node(node)
        for node, view in self.views.items():
            node.meta["val"] = view
        _use_whole_views(self.graph)
        for node in reversed(list(self.graph.nodes)):
            if not node.users and _MADE in node.meta:
                self.graph.erase_node(node)

    # ---------------------------------------------------------------- what is there

    def _given(self, node: Node) -> None:
        """A placeholder, a constant or a result of control flow: its parts are taken from its real view."""
        _part_dtype(node)
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
        """A part of a complex fake tensor, or with one more axis of 2 both of them; of a real one, another."""
        return FakeTensorFactory.of(self.tracer.fake_mode).like(value, _PARTS.get(value.dtype), *more)

    def _constant_parts(self, name: str) -> list[str]:
        """The names of the parts of a constant, which other nodes may name too."""
        names = [f"{name}_real", f"{name}_imag"]
        tensor = torch.view_as_real(self.program.constants[name].resolve_conj())
        for index, part in enumerate(names):
            self.program.constants[part] = tensor[..., index].contiguous()
        return names

    def _made(self, part: Node, node: Node, value: Any) -> Any:
        kept: dict[str, Any] = {key: node.meta[key] for key in ("nn_module_stack", "stack_trace") if key in node.meta}
        part.meta = {**kept, "val": value, metadata.SOURCE_NAME: node.name, _MADE: True}
        return part

    def _ask(self, node: Node) -> None:
        """A question about sizes is put to the real part; an assertion about dtypes is dropped."""
        if is_effect(node):
            self.graph.erase_node(node)
            return
        for argument in node.all_input_nodes:
            if argument in self.pairs:
                node.replace_input_with(argument, self.pairs[argument].real)  # type: ignore[arg-type]

    def _output(self, node: Node) -> None:
        """A complex result is its real view, under its own name."""
        node.args = (map_aggregate(node.args[0], lambda a: self._join(a, node)),)
        for argument, stack in self.joined.items():
            stack.name = argument.name

    def _control_flow(self, node: Node) -> None:
        """Complex operands and results of a body are real views, as those of the program are."""
        node.args = map_aggregate(node.args, lambda a: self._join(a, node))
        for user in list(node.users):
            if _has_complex(user):
                self._given(user)
        node.meta["val"] = tuple(self._fake(v, 2) if _is_complex(v) else v for v in node.meta["val"])

    def _join(self, argument: Any, before: Node) -> Any:
        """The real view of a complex node; any other argument as it is."""
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
        if self._is_same_call(node):
            self._call_twice(node)
            return
        leaves, spec = pytree.tree_flatten((node.args, dict(node.kwargs)))
        inputs = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Node)))
        flat: list[Any] = [part for n in inputs for part in self.pairs.get(n, (n,))]
        key = (node.target, spec, tuple(argument_key(leaf, inputs) for leaf in leaves))
        traced = self.memo.get(key)
        if traced is None:
            call = self._on_pairs(node, leaves, spec, inputs)
            traced = self.tracer.function_graph(call, [n.meta["val"] for n in flat], node, keeps_composites=True)
            if traced is None:
                raise TranslationError(f"{described(node)} leaves ATen on its way to real numbers.")
            if not any(map(makes_symbols, traced.nodes)):
                self.memo[key] = traced
        results, made = splice(self.graph, node, flat, traced)
        for new in made:
            new.meta[_MADE] = True
        flat_results = iter(results)
        grouped = [
            Complex(next(flat_results), next(flat_results)) if fake.is_complex() else next(flat_results)
            for fake in _tensors(node)
        ]
        self.replaced[node] = None
        if isinstance(node.meta["val"], torch.Tensor):
            self._stand_for(node, grouped[0], made)
        else:
            for user in list(node.users):
                self._stand_for(user, grouped[user.args[1]], made)  # type: ignore[index]

    def _is_same_call(self, node: Node) -> bool:
        """Whether the call is just made for each part: it only moves or adds the elements of complex tensors."""
        if name_of(node.target) not in BY_PARTS or not _has_complex(node) or _is_known(node.target):
            return False
        names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
        for name, value in [*zip(names, node.args, strict=False), *node.kwargs.items()]:
            for leaf in pytree.tree_leaves(value):
                real = isinstance(leaf, Node) and leaf not in self.pairs and isinstance(leaf.meta["val"], torch.Tensor)
                number = name in OPERANDS and not isinstance(leaf, Node)
                if isinstance(leaf, torch.dtype) or (real and name not in SELECTORS) or number:
                    return False
        return True

    def _call_twice(self, node: Node) -> None:
        """The call for each part, without a trace: it would ask again what the capture has asked about the sizes."""
        source = {metadata.SOURCE_NAME: node.name, metadata.SOURCE_TEXT: str(node.format_node())}
        with self.graph.inserting_before(node):
            calls = []
            for index in (0, 1):
                args, kwargs = map_aggregate(
                    (node.args, dict(node.kwargs)),
                    lambda a, index=index: self.pairs[a][index] if a in self.pairs else a,  # type: ignore[misc]
                )
                call = self.graph.call_function(node.target, args, kwargs)  # type: ignore[arg-type]
                values = list(map(self._fake, _tensors(node)))
                single = isinstance(node.meta["val"], torch.Tensor)
                call.meta = {**node.meta, **source, "val": values[0] if single else values, _MADE: True}
                calls.append(call)
            self.replaced[node] = None
            if isinstance(node.meta["val"], torch.Tensor):
                self._stand_for(node, Complex(*calls), dict.fromkeys(calls))  # type: ignore[arg-type]
                return
            for user in list(node.users):
                items = [self.graph.call_function(operator.getitem, (call, user.args[1])) for call in calls]
                for item, call in zip(items, calls, strict=True):
                    item.meta = {**call.meta, "val": call.meta["val"][user.args[1]]}
                self._stand_for(user, Complex(*items), dict.fromkeys(items))  # type: ignore[arg-type]

    def _on_pairs(self, node: Node, leaves: Sequence[Any], spec: Any, inputs: Sequence[Node]) -> Callable[..., Any]:
        """The function of flat real tensors that gives the call's flat results in the operator's dtypes."""
        function, expected, pairs = _pair_function(node), _tensors(node), self.pairs

        def call(*values: Any) -> Any:
            rest = iter(values)
            bound = {n: Complex(next(rest), next(rest)) if n in pairs else next(rest) for n in inputs}
            args, kwargs = pytree.tree_unflatten([bound[x] if isinstance(x, Node) else x for x in leaves], spec)
            results = function(*args, **kwargs)  # type: ignore[misc]
            results = [results] if isinstance(results, (Complex, torch.Tensor)) else results
            return [part for result, fake in zip(results, expected, strict=True) for part in _as_expected(result, fake)]

        return call

    def _stand_for(self, node: Node, result: Any, made: dict[Node, None]) -> None:
        """Lets ``result``, a node or a pair of them, stand for the node, of whose name it takes what is free."""
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


def _tensors(node: Node) -> list[torch.Tensor]:
    """The fake results of a node."""
    value = node.meta["val"]
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _as_expected(result: Any, fake: torch.Tensor) -> list[torch.Tensor]:
    """A result in the dtype of the operator's, in one part or two."""
    if not fake.is_complex():
        if isinstance(result, Complex):
            result = truth(result) if fake.dtype == torch.bool else result.real
        return [in_dtype(result, fake.dtype)]
    dtype = _PARTS[fake.dtype]
    if not isinstance(result, Complex):
        return [in_dtype(result, dtype), torch.zeros_like(result, dtype=dtype)]
    return [in_dtype(part, dtype) for part in result]


def _use_whole_views(graph: Graph) -> None:
    """Both parts of one real view, stacked again, are that view."""
    for node in graph.find_nodes(op="call_function", target=aten.stack.default):
        parts, axis = node.args[0], node.args[1] if len(node.args) > 1 else 0
        rank = node.meta["val"].dim()
        if axis % rank != rank - 1 or len(parts) != 2:
            continue
        sources = [_is_part(part, index) for index, part in enumerate(parts)]
        if sources[0] is None or sources[0] is not sources[1]:
            continue
        whole = sources[0]
        node.replace_all_uses_with(whole)
        graph.erase_node(node)


def _is_part(node: Any, index: int) -> Node | None:
    """The real view of which ``node`` is the part ``index``."""
    if not isinstance(node, Node) or node.target is not aten.select.int or node.args[2] != index:
        return None
    source: Any = node.args[0]
    value = source.meta["val"]
    return source if node.args[1] in (-1, value.dim() - 1) and value.shape[-1] == 2 else None
