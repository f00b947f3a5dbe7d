"""A function of fake tensors → the FX graph of the operators that it calls.

As torch.fx.experimental's make_fx does under a fake mode, with the same graphs, for less than half of its time: what
makes make_fx general (constants that it computes, hooks, metadata of calls, proxies of all numbers) has no use here.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import Tensor
from torch._dispatch.python import enable_pre_dispatch, enable_python_dispatcher
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.fx.experimental.symbolic_shapes import compute_unbacked_bindings
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary

from fx_onnx import symbols

aten = torch.ops.aten

_ASKED = frozenset({torch.ops.prim.device.default, aten.size.default, aten.stride.default})
"""What is asked of a tensor and is no operation."""


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
    before_composition = enable_pre_dispatch() if keeps_composites else nullcontext()
    with fake_mode, torch.no_grad(), enable_python_dispatcher(), before_composition:
        return _Recorder(fake_mode, keeps_composites).record(function, values)


class _Recorder(ProxyTorchDispatchMode):
    """The mode in which torch hands over every operator that is called.

    Only subclasses of torch's own mode get to see an operator before torch takes it apart, and symbolic arithmetic.
    """

    def __init__(self, fake_mode: FakeTensorMode, keeps_composites: bool) -> None:
        super().__init__(None, "real", pre_dispatch=keeps_composites)  # type: ignore[arg-type]  # it has no tracer
        self.fake_mode = fake_mode
        self.recording = Recording()
        self.tensors: MutableMapping[Tensor, Node] = WeakTensorKeyDictionary()
        self.numbers: dict[sympy.Expr, Node | Callable[[], Node]] = {}  # made when first used

    def record(self, function: Callable[..., Any], values: Sequence[Any]) -> Recording:
        graph = self.recording.graph
        for index, value in enumerate(values):
            self._stands_for(graph.placeholder(f"arg{index}_1"), value)
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
        if func is aten.lift_fresh.default:
            func = aten.lift_fresh_copy.default  # what is written to it is not written to the constant
        arguments = self._argument(args)
        if func._schema.is_mutable:
            self._keep_shapes((args, kwargs))
        product = _product(*args) if func is aten.matmul.default else None
        result = func(*args, **kwargs) if product is None else product
        named = {key: self._argument(value) for key, value in kwargs.items()}
        self._call(func, arguments, named, result, func.overloadpacket.__name__)
        return result

    def __sym_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Arithmetic on symbolic numbers, of which only what an operator uses is recorded."""
        result = func(*args, **kwargs)
        if isinstance(result, symbols.SymbolicNumber):
            self._number(result, lambda: self._call(func, self._argument(args), {}, result, func.__name__))
        return result

    def while_loop(
        self, more: Callable[..., Any], step: Callable[..., Any], carry: Sequence[Any], given: Sequence[Any]
    ) -> tuple[Tensor, ...]:
        """``while_loop`` of tensors that keep their sizes; its functions are recorded as graphs of their own."""
        bodies = []
        for function in (more, step):
            with self.fake_mode:
                values = [*map(torch.empty_like, carry), *given]
            body = _Recorder(self.fake_mode, self.pre_dispatch).record(function, values)
            bodies.append(self._named(body))
        after = [each.meta["val"] for each in body.graph.output_node().args[0]]  # type: ignore[union-attr]
        if [_kind(each) for each in after] != [_kind(each) for each in carry]:
            raise NotImplementedError("A loop in a decomposition must keep the sizes and dtypes of its tensors.")
        with self.fake_mode:
            results = tuple(map(torch.empty_like, carry))
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
        node.meta["val"] = value.detach() if _is_factory(node.target) else value
        if isinstance(value, Tensor):
            self.tensors[value] = node
            for axis, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    arguments = (aten.sym_size.int, (node, axis), {}, size, "sym_size")
                    self._number(size, functools.partial(self._call, *arguments))
        elif isinstance(value, symbols.SymbolicNumber):
            self._number(value, node)
        elif isinstance(value, (list, tuple)):
            for index, each in enumerate(value):
                if isinstance(each, (Tensor, *symbols.SymbolicNumber)):
                    self._stands_for(self.recording.graph.call_function(operator.getitem, (node, index)), each)

    def _number(self, number: Any, node: Node | Callable[[], Node]) -> None:
        self.numbers.setdefault(symbols.expression(number), node)

    def _argument(self, value: Any) -> Any:
        """A value as an argument of a node: nodes for tensors and symbolic numbers."""
        if isinstance(value, Tensor):
            known = self.tensors.get(value)
            return self._named(value) if known is None else known
        if isinstance(value, symbols.SymbolicNumber):
            return self._symbolic(value)
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._argument, value))
        return value

    def _symbolic(self, number: Any) -> Any:
        """The node of a symbolic number; the number itself where only the tensors' strides, say, told of it."""
        number = symbols.static(number)
        found = self.numbers.get(symbols.expression(number), number)
        if callable(found):
            found = self.numbers[symbols.expression(number)] = found()
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
            self.tensors[value] = node
        return node

    def _keep_shapes(self, arguments: Any) -> None:
        """An operator in place may change a tensor's sizes, and what was said of it before must stay true."""
        for tensor in pytree.tree_leaves(arguments):
            if isinstance(tensor, Tensor) and (node := self.tensors.get(tensor)) is not None:
                node.meta["val"] = tensor.detach()


torch.ops.higher_order.while_loop.py_impl(_Recorder)(_Recorder.while_loop)


@functools.cache
def _is_factory(target: Any) -> bool:
    """Whether Python gets a new tensor out of an operator that makes one, if something else holds the one it made."""
    return isinstance(target, OpOverload) and any(a.name == "pin_memory" for a in target._schema.arguments)


def _product(left: Tensor, right: Tensor) -> Tensor | None:
    """What ``matmul`` gives of matrices in equal batches; else None.

    torch finds it by way of expansions and reshapes, which is slow, of symbolic sizes above all.
    """
    batches = [tuple(map(symbols.expression, x.shape[:-2])) for x in (left, right)]
    if min(left.dim(), right.dim()) < 2 or batches[0] != batches[1]:
        return None
    return left.new_empty((*left.shape[:-1], right.size(-1)))


def _kind(value: Any) -> Any:
    """The dtype and sizes of a tensor."""
    return value.dtype, tuple(map(symbols.expression, value.shape))
