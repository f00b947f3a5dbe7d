"""A function of fake tensors → the FX graph of the operators that it calls.

As torch.fx.experimental's make_fx does under a fake mode, with the same graphs, for a small part of its time: what
makes make_fx general (constants that it computes, hooks, metadata of calls, proxies of all numbers) has no use here,
and most shapes are found by rules of our own, not by running the operator on fake tensors.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import Tensor
from torch.fx import Graph, Node

from fx_onnx.aten.tracing.fake_tensors import FakeTensorFactory, TensorSpec
from fx_onnx.aten.tracing.shape_rules import find_rule, result_form
from fx_onnx.core import symbolic_sizes
from fx_onnx.core.torch_private import (
    FakeTensor,
    FakeTensorMode,
    OpOverload,
    ProxyTorchDispatchMode,
    compute_unbacked_bindings,
    enable_python_dispatcher,
    implement_in_mode,
    pytree,
    torch_composes,
)

aten = torch.ops.aten

_ASKED = frozenset({torch.ops.prim.device.default, aten.size.default, aten.stride.default})
"""What is asked of a tensor and is no operation."""

_NODE = "_fx_onnx_node"
"""The attribute of a tensor that an operator made: the node of that."""


@dataclass
class Recording:
    """A recorded function: its graph, and the tensors and bodies that ``get_attr`` nodes name."""

    graph: Graph = field(default_factory=Graph)
    named: dict[str, Tensor | Recording] = field(default_factory=dict)


def record(
    function: Callable[..., Any], values: Sequence[Any], fake_mode: FakeTensorMode, keeps_composites: bool
) -> Recording:
    """The graph of ``function(*values)``, with a placeholder for each value.

    Args:
        function: returns tensors and numbers in any structure of tuples, lists and dicts.
        values: fake tensors of ``fake_mode``, each a tensor of its own, and numbers.
        fake_mode: makes the new tensors.
        keeps_composites: whether operators that torch itself composes, such as linear and matmul, stay whole.

    Raises:
        NotImplementedError: it uses a fake tensor that is none of the values, or a loop that changes sizes.
    """
    with fake_mode, torch.no_grad(), enable_python_dispatcher(), torch_composes(not keeps_composites):
        try:
            return _Recorder(fake_mode).record(function, values)
        except _MemoryMatters:
            fresh = [x.new_empty_strided(x.shape, x.stride()) if isinstance(x, Tensor) else x for x in values]
            return _Recorder(fake_mode, asks_torch=True).record(function, fresh)


class _MemoryMatters(Exception):
    """A function writes to a tensor, or asks where its elements lie, of which rules of sizes know nothing."""


class _Recorder(ProxyTorchDispatchMode):
    """The mode in which torch hands over every operator that is called.

    Only subclasses of torch's own mode get to see symbolic arithmetic.

    Attributes:
        asks_torch: whether torch runs all operators on fake tensors, which then share memory as the real ones would.
        forms: of the tensors that nodes stand for, as far as they were needed.
        given: tensors that are not made here, by identity, each with its node.
        numbers: the node of each symbolic number, or what makes it when it is used.
    """

    def __init__(self, fake_mode: FakeTensorMode, asks_torch: bool = False) -> None:
        super().__init__(None, "real", pre_dispatch=False)  # type: ignore[arg-type]  # it has no tracer
        self.fake_mode, self.fakes, self.asks_torch = fake_mode, FakeTensorFactory.of(fake_mode), asks_torch
        self.recording = Recording()
        self.forms: dict[Node | None, TensorSpec] = {}
        self.given: dict[int, tuple[Tensor, Node]] = {}
        self.numbers: dict[sympy.Expr, Node | Callable[[], Node]] = {}

    def record(self, function: Callable[..., Any], values: Sequence[Any]) -> Recording:
        graph = self.recording.graph
        for index, value in enumerate(values):
            self._give(graph.placeholder(f"arg{index}_1"), value)
        with self:
            results = function(*values)
        graph.output(pytree.tree_map(self._argument, results))
        return self.recording

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in _ASKED:
            return func(*args, **kwargs)
        if func is aten.detach_.default:
            return args[0]  # nothing is differentiated
        if func is aten.lift_fresh.default:
            func = aten.lift_fresh_copy.default  # what is written to it is not written to the constant
        arguments = self._argument(args)
        if _is_about_memory(func):
            if not self.asks_torch:
                raise _MemoryMatters
            self._keep_shapes((args, kwargs))
        named = {key: self._argument(value) for key, value in kwargs.items()}
        result = None if self.asks_torch else self._by_rule(func, args, kwargs)
        if result is None:
            with torch_composes(True):
                result = func(*args, **kwargs)
        self._call(func, arguments, named, result, func.overloadpacket.__name__)
        return result

    def _by_rule(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor | None:
        """The result of a call whose dtype and sizes a rule says."""
        if find_rule(func) is None:
            return None
        given = [*args, *kwargs.values()]
        tensors = [x for x in given if isinstance(x, Tensor)]
        if tensors and all(getattr(x, "constant", None) is not None for x in tensors):
            return None  # torch knows the values of the result too
        if any(isinstance(x, (torch.SymFloat, torch.SymBool)) for x in given):
            return None
        named = {key: self._formed(value) for key, value in kwargs.items()}
        form = result_form(func, [*map(self._formed, args)], named, self.fake_mode)
        return None if form is None else self.fakes.make(form, _device(tensors, kwargs))

    def _formed(self, value: Any) -> Any:
        """An argument as rules of sizes take it."""
        if isinstance(value, Tensor):
            node = self._node(value)
            if node not in self.forms:
                self.forms[node] = self.fakes.form(value)
            return self.forms[node]
        if isinstance(value, torch.SymInt):
            return self.fakes.size(value)
        return [*map(self._formed, value)] if isinstance(value, (list, tuple)) else value

    def __sym_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Arithmetic on symbolic numbers, of which only what an operator uses is recorded."""
        result = func(*args, **kwargs)
        if isinstance(result, symbolic_sizes.SymbolicNumber):
            self._number(result, lambda: self._call(func, self._argument(args), {}, result, func.__name__))
        return result

    def while_loop(
        self, more: Callable[..., Any], step: Callable[..., Any], carry: Sequence[Any], given: Sequence[Any]
    ) -> tuple[Tensor, ...]:
        """``while_loop`` of tensors that keep their sizes; its functions are recorded as graphs of their own."""
        bodies = []
        for function in (more, step):
            values = [*map(self._like, carry), *given]
            body = _Recorder(self.fake_mode, self.asks_torch).record(function, values)
            bodies.append(self._named(body))
        after = [each.meta["val"] for each in body.graph.output_node().args[0]]  # type: ignore[union-attr]
        if [*map(self.fakes.form, after)] != [*map(self.fakes.form, carry)]:
            raise NotImplementedError("A loop in a decomposition must keep the sizes and dtypes of its tensors.")
        results = tuple(map(self._like, carry))
        operands = self._argument(tuple(carry)), self._argument(tuple(given))
        self._call(torch.ops.higher_order.while_loop, (*bodies, *operands), {}, results, "while_loop")
        return results

    # ---------------------------------------------------------------- nodes

    def _call(self, target: Any, args: Any, kwargs: dict[str, Any], result: Any, name: str) -> Node:
        node = self.recording.graph.create_node("call_function", target, args, kwargs, name)
        if made := compute_unbacked_bindings(self.fake_mode.shape_env, result):
            node.meta["unbacked_bindings"] = made
        self._stands_for(node, result)
        return node

    def _stands_for(self, node: Node, value: Any) -> None:
        """From now on ``node`` is what stands in the graph for a tensor, a number, or several."""
        node.meta["val"] = self._apart(value) if _is_factory(node.target) else value
        if isinstance(value, Tensor):
            if id(value) in self.given:  # it was written to
                self.given[id(value)] = value, node
            else:
                setattr(value, _NODE, node)
            for axis, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and symbolic_sizes.expression(size) not in self.numbers:
                    arguments = (aten.sym_size.int, (node, axis), {}, size, "sym_size")
                    self._number(size, functools.partial(self._call, *arguments))
        elif isinstance(value, symbolic_sizes.SymbolicNumber):
            self._number(value, node)
        elif isinstance(value, (list, tuple)):
            for index, each in enumerate(value):
                if isinstance(each, (Tensor, *symbolic_sizes.SymbolicNumber)):
                    self._stands_for(self.recording.graph.call_function(operator.getitem, (node, index)), each)

    def _like(self, tensor: Tensor) -> Tensor:
        """A new tensor of the same form."""
        if not self.asks_torch:
            return self.fakes.like(tensor)
        with self.fake_mode:
            return torch.empty_like(tensor)

    def _apart(self, tensor: Tensor) -> Tensor:
        """Another tensor for the same elements."""
        return tensor.detach() if self.asks_torch else self._like(tensor)

    def _give(self, node: Node, value: Any) -> None:
        """``node`` stands for a value that is not made here, and is not changed therefore."""
        if isinstance(value, Tensor):
            self.given[id(value)] = value, node
        self._stands_for(node, value)

    def _node(self, tensor: Tensor) -> Node | None:
        """What stands for a tensor."""
        if id(tensor) in self.given:
            return self.given[id(tensor)][1]
        found: Node | None = getattr(tensor, _NODE, None)
        return found if found is not None and found.graph is self.recording.graph else None

    def _number(self, number: Any, node: Node | Callable[[], Node]) -> None:
        self.numbers.setdefault(symbolic_sizes.expression(number), node)

    def _argument(self, value: Any) -> Any:
        """A value as an argument of a node: nodes for tensors and symbolic numbers."""
        if isinstance(value, Tensor):
            known = self._node(value)
            return self._named(value) if known is None else known
        if isinstance(value, symbolic_sizes.SymbolicNumber):
            return self._symbolic(value)
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._argument, value))
        return value

    def _symbolic(self, number: Any) -> Any:
        """The node of a symbolic number; the number itself where only the tensors' strides, say, told of it."""
        number = symbolic_sizes.static(number)
        found = self.numbers.get(symbolic_sizes.expression(number), number)
        if callable(found):
            found = self.numbers[symbolic_sizes.expression(number)] = found()
        return found

    def _named(self, value: Tensor | Recording) -> Node:
        """A ``get_attr`` node for a constant, or for a body."""
        if isinstance(value, FakeTensor):
            raise NotImplementedError("A decomposition uses a tensor that it was not given.")
        name = f"_attribute{len(self.recording.named)}"
        self.recording.named[name] = value
        node = self.recording.graph.create_node("get_attr", name)
        if isinstance(value, Tensor):
            node.meta["val"] = self.fake_mode.from_tensor(value, static_shapes=True)
            self.given[id(value)] = value, node
        return node

    def _keep_shapes(self, arguments: Any) -> None:
        """An operator in place may change a tensor's sizes, and what was said of it before must stay true."""
        for tensor in pytree.tree_leaves(arguments):
            if isinstance(tensor, Tensor) and (node := self._node(tensor)) is not None:
                node.meta["val"] = tensor.detach()


implement_in_mode(torch.ops.higher_order.while_loop, _Recorder, _Recorder.while_loop)


@functools.cache
def _is_factory(target: Any) -> bool:
    """Whether Python gets a new tensor out of an operator that makes one, if something else holds the one it made."""
    return isinstance(target, OpOverload) and any(a.name == "pin_memory" for a in target._schema.arguments)


@functools.cache
def _is_about_memory(func: OpOverload) -> bool:
    """Whether a call writes to a tensor or reads it by strides."""
    return func._schema.is_mutable or func._schema.name.startswith("aten::as_strided")


def _device(tensors: Sequence[Tensor], kwargs: Mapping[str, Any]) -> torch.device:
    """Where the result of a call is: where it is asked to be, or else where the tensors with dimensions are."""
    first = next((x for x in tensors if x.dim()), next(iter(tensors), None))
    return kwargs.get("device") or (torch.get_default_device() if first is None else first.device)
