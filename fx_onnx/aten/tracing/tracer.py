"""Tracing: a function of fake tensors → the FX graph of the operators that it calls.

The graph is the one that torch.fx.experimental's ``make_fx`` makes under a fake mode, in a fraction of its time. This
tracer leaves out what makes ``make_fx`` general (constant propagation, hooks, metadata of calls, proxies of all
numbers), and finds most shapes by ``shape_rules`` instead of running the operator on fake tensors.
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
from fx_onnx.aten.tracing.shape_rules import find_rule, infer_spec
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import (
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

_QUERIES = frozenset({torch.ops.prim.device.default, aten.size.default, aten.stride.default})
"""Operators that query a tensor and do not compute; they get no node."""

_NODE = "_fx_onnx_node"
"""The attribute of a traced tensor that holds the node that made it."""


@dataclass
class Trace:
    """A traced function.

    Attributes:
        graph: the graph of its calls.
        attributes: the tensors and the bodies of control flow that ``get_attr`` nodes of the graph name.
    """

    graph: Graph = field(default_factory=Graph)
    attributes: dict[str, Tensor | Trace] = field(default_factory=dict)


def trace(
    function: Callable[..., Any], values: Sequence[Any], fake_mode: FakeTensorMode, keeps_composites: bool
) -> Trace:
    """Traces ``function(*values)`` to a graph with a placeholder for each value.

    Args:
        function: returns tensors and numbers in any structure of tuples, lists and dicts.
        values: numbers and distinct fake tensors of ``fake_mode``.
        fake_mode: makes the new tensors.
        keeps_composites: whether composite operators (CompositeImplicitAutograd) such as linear stay whole.

    Raises:
        NotImplementedError: the function uses a fake tensor that is not among the values, or a loop that changes sizes.
    """
    with fake_mode, torch.no_grad(), enable_python_dispatcher(), torch_composes(not keeps_composites):
        try:
            return _TracingMode(fake_mode).run(function, values)
        except _MemoryMatters:
            fresh = [x.new_empty_strided(x.shape, x.stride()) if isinstance(x, Tensor) else x for x in values]
            return _TracingMode(fake_mode, uses_rules=False).run(function, fresh)


class _MemoryMatters(Exception):
    """The function writes to a tensor or reads it by strides. Results of shape rules do not model memory."""


class _TracingMode(ProxyTorchDispatchMode):
    """The dispatch mode that receives every operator that the function calls.

    It derives from torch's own tracing mode because torch passes symbolic arithmetic to that class only.

    Attributes:
        uses_rules: whether shape rules make results. Otherwise torch runs all operators on fake tensors, which then
            share memory as the real tensors would.
        trace: the trace so far.
        specs: the specs of the tensors of nodes, computed on first use.
        inputs: tensors that the function did not make, by identity, each with its node.
        numbers: the node of each symbolic number, or a function that makes the node on first use.
    """

    def __init__(self, fake_mode: FakeTensorMode, uses_rules: bool = True) -> None:
        super().__init__(None, "real", pre_dispatch=False)  # type: ignore[arg-type]  # there is no proxy tracer
        self.fake_mode, self.fakes, self.uses_rules = fake_mode, FakeTensorFactory.of(fake_mode), uses_rules
        self.trace = Trace()
        self.specs: dict[Node | None, TensorSpec] = {}
        self.inputs: dict[int, tuple[Tensor, Node]] = {}
        self.numbers: dict[sympy.Expr, Node | Callable[[], Node]] = {}

    def run(self, function: Callable[..., Any], values: Sequence[Any]) -> Trace:
        """Traces one function."""
        graph = self.trace.graph
        for index, value in enumerate(values):
            self._bind_input(graph.placeholder(f"arg{index}_1"), value)
        with self:
            results = function(*values)
        graph.output(pytree.tree_map(self._argument, results))
        return self.trace

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in _QUERIES:
            return func(*args, **kwargs)
        if func is aten.detach_.default:
            return args[0]  # nothing is differentiated
        if func is aten.lift_fresh.default:
            func = aten.lift_fresh_copy.default  # a write to the result must not reach the constant
        arguments = self._argument(args)
        if _is_about_memory(func):
            if self.uses_rules:
                raise _MemoryMatters
            self._keep_shapes((args, kwargs))
        keyword_arguments = {key: self._argument(value) for key, value in kwargs.items()}
        result = self._by_rule(func, args, kwargs) if self.uses_rules else None
        if result is None:
            with torch_composes(True):
                result = func(*args, **kwargs)
        self._call(func, arguments, keyword_arguments, result, func.overloadpacket.__name__)
        return result

    def _by_rule(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor | None:
        """Returns the fake result of a call by its shape rule; None if there is no rule or the rule declines."""
        if find_rule(func) is None:
            return None
        values = [*args, *kwargs.values()]
        tensors = [x for x in values if isinstance(x, Tensor)]
        if tensors and all(getattr(x, "constant", None) is not None for x in tensors):
            return None  # torch also computes the elements of the result
        if any(isinstance(x, (torch.SymFloat, torch.SymBool)) for x in values):
            return None
        keyword_specs = {key: self._spec(value) for key, value in kwargs.items()}
        spec = infer_spec(func, [*map(self._spec, args)], keyword_specs, self.fake_mode)
        return None if spec is None else self.fakes.make(spec, _device(tensors, kwargs))

    def _spec(self, value: Any) -> Any:
        """Converts an argument for shape rules: a tensor to its spec, a symbolic integer to its expression."""
        if isinstance(value, Tensor):
            node = self._node(value)
            if node not in self.specs:
                self.specs[node] = self.fakes.spec(value)
            return self.specs[node]
        if isinstance(value, torch.SymInt):
            return self.fakes.size(value)
        return [*map(self._spec, value)] if isinstance(value, (list, tuple)) else value

    def __sym_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Computes with symbolic numbers. A node is made only when an operator uses the result."""
        result = func(*args, **kwargs)
        if isinstance(result, symbolic_sizes.SymbolicNumber):
            self._bind_number(result, lambda: self._call(func, self._argument(args), {}, result, func.__name__))
        return result

    def while_loop(
        self, condition: Callable[..., Any], step: Callable[..., Any], carried: Sequence[Any], extra: Sequence[Any]
    ) -> tuple[Tensor, ...]:
        """Traces a ``while_loop`` whose tensors keep their sizes; its two functions become traces themselves."""
        bodies = []
        for function in (condition, step):
            values = [*map(self._like, carried), *extra]
            body = _TracingMode(self.fake_mode, self.uses_rules).run(function, values)
            bodies.append(self._get_attr(body))
        after = [result.meta["val"] for result in body.graph.output_node().args[0]]  # type: ignore[union-attr]
        if [*map(self.fakes.spec, after)] != [*map(self.fakes.spec, carried)]:
            raise NotImplementedError("A loop in a decomposition must keep the sizes and dtypes of its tensors.")
        results = tuple(map(self._like, carried))
        operands = self._argument(tuple(carried)), self._argument(tuple(extra))
        self._call(torch.ops.higher_order.while_loop, (*bodies, *operands), {}, results, "while_loop")
        return results

    # ---------------------------------------------------------------- nodes

    def _call(self, target: Any, args: Any, kwargs: dict[str, Any], result: Any, name: str) -> Node:
        node = self.trace.graph.create_node("call_function", target, args, kwargs, name)
        if bindings := compute_unbacked_bindings(self.fake_mode.shape_env, result):
            node.meta["unbacked_bindings"] = bindings
        self._bind(node, result)
        return node

    def _bind(self, node: Node, value: Any) -> None:
        """Records that ``node`` computes ``value``: a tensor, a number, or several of them."""
        # An operator such as unsqueeze_ may change the shape of one of several results later.
        is_separate = _is_factory(node.target) or (isinstance(value, (list, tuple)) and not self.uses_rules)
        node.meta["val"] = self._separate(value) if is_separate else value
        if isinstance(value, Tensor):
            if id(value) in self.inputs:  # it was written to
                self.inputs[id(value)] = value, node
            else:
                setattr(value, _NODE, node)
            for axis, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and symbolic_sizes.expression(size) not in self.numbers:
                    arguments = (aten.sym_size.int, (node, axis), {}, size, "sym_size")
                    self._bind_number(size, functools.partial(self._call, *arguments))
        elif isinstance(value, symbolic_sizes.SymbolicNumber):
            self._bind_number(value, node)
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                if isinstance(item, (Tensor, *symbolic_sizes.SymbolicNumber)):
                    self._bind(self.trace.graph.call_function(operator.getitem, (node, index)), item)

    def _bind_input(self, node: Node, value: Any) -> None:
        """Records the node of a value that the function did not make. The tensor gets no attribute."""
        if isinstance(value, Tensor):
            self.inputs[id(value)] = value, node
        self._bind(node, value)

    def _bind_number(self, number: Any, node: Node | Callable[[], Node]) -> None:
        self.numbers.setdefault(symbolic_sizes.expression(number), node)

    def _like(self, tensor: Tensor) -> Tensor:
        """Returns a new tensor of the same spec."""
        if self.uses_rules:
            return self.fakes.like(tensor)
        with self.fake_mode:
            return torch.empty_like(tensor)

    def _separate(self, value: Any) -> Any:
        """Returns a value whose tensors are other objects with the same elements."""
        return pytree.tree_map_only(Tensor, self._like if self.uses_rules else Tensor.detach, value)

    def _node(self, tensor: Tensor) -> Node | None:
        """Returns the node of a tensor; None if the trace does not know the tensor."""
        if id(tensor) in self.inputs:
            return self.inputs[id(tensor)][1]
        node: Node | None = getattr(tensor, _NODE, None)
        return node if node is not None and node.graph is self.trace.graph else None

    def _argument(self, value: Any) -> Any:
        """Converts a value to an argument of a node: tensors and symbolic numbers become nodes."""
        if isinstance(value, Tensor):
            known = self._node(value)
            return self._get_attr(value) if known is None else known
        if isinstance(value, symbolic_sizes.SymbolicNumber):
            return self._symbolic(value)
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._argument, value))
        return value

    def _symbolic(self, number: Any) -> Any:
        """Returns the node of a symbolic number; the number itself if no node computes it (a stride, for example)."""
        number = symbolic_sizes.static(number)
        node = self.numbers.get(symbolic_sizes.expression(number), number)
        if callable(node):
            node = self.numbers[symbolic_sizes.expression(number)] = node()
        return node

    def _get_attr(self, value: Tensor | Trace) -> Node:
        """Returns a new ``get_attr`` node of a constant or a body."""
        if isinstance(value, FakeTensor):
            raise NotImplementedError("A decomposition uses a tensor that is not one of its arguments.")
        name = f"_attribute{len(self.trace.attributes)}"
        self.trace.attributes[name] = value
        node = self.trace.graph.create_node("get_attr", name)
        if isinstance(value, Tensor):
            node.meta["val"] = self.fake_mode.from_tensor(value, static_shapes=True)
            self.inputs[id(value)] = value, node
        return node

    def _keep_shapes(self, arguments: Any) -> None:
        """Copies the fake values of the arguments' nodes, because an in-place operator may change their shapes."""
        for tensor in pytree.tree_leaves(arguments):
            if isinstance(tensor, Tensor) and (node := self._node(tensor)) is not None:
                node.meta["val"] = tensor.detach()


implement_in_mode(torch.ops.higher_order.while_loop, _TracingMode, _TracingMode.while_loop)


@functools.cache
def _is_factory(target: Any) -> bool:
    """Returns whether an operator makes a tensor from numbers.

    If the node kept a reference to such a tensor, torch would return the tensor to the traced function as a new Python
    object, and the tracer would not recognize it. So ``_bind`` gives the node another tensor.
    """
    return isinstance(target, OpOverload) and any(a.name == "pin_memory" for a in target._schema.arguments)


@functools.cache
def _is_about_memory(func: OpOverload) -> bool:
    """Returns whether an operator writes to a tensor or reads it by strides."""
    return func._schema.is_mutable or func._schema.name.startswith("aten::as_strided")


def _device(tensors: Sequence[Tensor], kwargs: Mapping[str, Any]) -> torch.device:
    """Returns the device of a result: the requested one, or else that of the first argument with dimensions."""
    first = next((x for x in tensors if x.dim()), next(iter(tensors), None))
    return kwargs.get("device") or (torch.get_default_device() if first is None else first.device)
