"""Facts about FX nodes: what a call computes, with which arguments, and where it comes from."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate

from fx_onnx.messages.source_lines import traced_lines
from fx_onnx.onnx_model import metadata
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.sizes.size_text import shape_text, without_symbols
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import CHECKS, FakeTensor, FakeTensorMode, OpOverload, operator_name, pytree

# Calls that inform torch.export or the allocator and compute nothing.
_EFFECTS = frozenset(
    {
        aten._assert_scalar.default, aten._assert_async.msg, aten._assert_async.default,
        aten._assert_tensor_metadata.default, aten._linalg_check_errors.default, aten.sym_constrain_range.default,
        aten.sym_constrain_range_for_size.default, *CHECKS,
    }
)  # fmt: skip

# Higher-order operators that run their body once, unchanged, with the position of the body among the arguments.
_REGIONS = {
    "wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4, "tag_activation_checkpoint": 0, "invoke_subgraph": 0,
    "hints_wrapper": 0,
}  # fmt: skip

_NAMES = "stft istft fft_irfft fft_irfft2 fft_irfftn fft_hfft fft_hfft2 fft_hfftn"
_COMPLEX_INSIDE = frozenset(f"aten::{name}" for name in _NAMES.split())
"""Operators whose decompositions compute with complex numbers, although their arguments or results may be real."""

AUTOCAST_ENABLED = 2
"""The position of the argument ``enabled`` of ``wrap_with_autocast``."""


# ---------------------------------------------------------------- kinds of nodes


def is_symbolic(node: Node) -> bool:
    """Returns whether the node computes a symbolic number. Its users compute it from its expression instead."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))


def is_effect(node: Node) -> bool:
    """Returns whether the node computes nothing: an assertion or a hint to torch.export."""
    return node.target in _EFFECTS or (isinstance(node.target, OpOverload) and "assert" in node.target.__name__)


def makes_symbols(node: Node) -> bool:
    """Returns whether the node creates data-dependent sizes. Each call has its own, so two calls cannot share them."""
    return bool(node.meta.get("unbacked_bindings"))


def is_complex(value: Any) -> bool:
    """Returns whether a value is a complex tensor."""
    return isinstance(value, torch.Tensor) and value.is_complex()


def has_complex(node: Node) -> bool:
    """Returns whether a result of the node is complex."""
    value = node.meta.get("val")
    return any(map(is_complex, value)) if isinstance(value, (list, tuple)) else is_complex(value)


def makes_complex(node: Node) -> bool:
    """Returns whether a call has complex results, or complex values inside it."""
    return has_complex(node) or operator_name(node.target).partition(".")[0] in _COMPLEX_INSIDE


def is_autocast_region(node: Node) -> bool:
    """Returns whether the node calls the body of an autocast region."""
    return operator_name(node.target) == "wrap_with_autocast"


def region_body(node: Node) -> tuple[Graph, Sequence[Any]] | None:
    """Returns the body and the operands of a region that runs its body once, such as ``no_grad`` or checkpointing.

    Returns None for every other node, and for an autocast region that casts.
    """
    name = operator_name(node.target) if node.op == "call_function" else ""
    position = _REGIONS.get(name)
    if position is None or (is_autocast_region(node) and node.args[AUTOCAST_ENABLED] is not False):
        return None
    body, operands = node.args[position], node.args[position + (2 if name == "invoke_subgraph" else 1) :]
    if name == "hints_wrapper":
        operands = operands[0]  # type: ignore[assignment]
    return attribute(body).graph, operands  # type: ignore[arg-type]


# ---------------------------------------------------------------- values and arguments


def attribute(node: Node) -> Any:
    """Returns the attribute of its module that a captured ``get_attr`` node names."""
    return operator.attrgetter(str(node.target))(node.graph.owning_module)


def fake_mode(graph: Graph) -> FakeTensorMode:
    """Returns the FakeTensorMode of the graph's values; a new one if the graph has no tensors."""
    values = (node.meta.get("val") for node in graph.nodes)
    return next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None) or FakeTensorMode()


def fake_results(node: Node) -> list[Any]:
    """Returns the fake results of a call as a list, also if the call has one result."""
    value = node.meta["val"]
    return list(value) if isinstance(value, (list, tuple)) else [value]


def meta_value(argument: Any) -> Any:
    """Returns the fake tensor or symbolic number of an argument that is a node, and any other argument as it is."""
    return argument.meta["val"] if isinstance(argument, Node) else argument


def meta_arguments(node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a node, with the fake tensor or symbolic number of each argument that is a node."""

    def meta(argument: Any) -> Any:
        return argument.meta.get("val", argument) if isinstance(argument, Node) else argument

    return map_aggregate(node.args, meta), map_aggregate(dict(node.kwargs), meta)


@dataclass(frozen=True)
class FlatCall:
    """A call with its arguments flattened, so that it can be made again with other values.

    Attributes:
        node: the call.
        leaves: the flattened arguments.
        structure: their pytree structure.
        inputs: the nodes among the leaves, each once, in order.
    """

    node: Node
    leaves: list[Any]
    structure: Any
    inputs: list[Node]

    @classmethod
    def of(cls, node: Node) -> FlatCall:
        """Flattens the arguments of a call."""
        leaves, structure = pytree.tree_flatten((node.args, dict(node.kwargs)))
        return cls(node, leaves, structure, list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Node))))

    @cached_property
    def key(self) -> Hashable:
        """A key that two calls share if they trace to the same graph: tensors count by dtype, sizes and strides."""
        return self.node.target, self.structure, tuple(map(self._leaf_key, self.leaves))

    def bind(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the call's arguments and keyword arguments, with one of ``values`` for each of ``inputs``."""
        bound = dict(zip(self.inputs, values, strict=True))
        leaves = [bound[leaf] if isinstance(leaf, Node) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return args, kwargs

    def _leaf_key(self, leaf: Any) -> Hashable:
        if not isinstance(leaf, Node):
            return type(leaf), repr(leaf)  # the text, because 0.0 equals -0.0 and 1 equals True
        value, index = leaf.meta.get("val"), self.inputs.index(leaf)
        if isinstance(value, torch.Tensor):
            return index, value.dtype, tuple(map(symbolic_sizes.size_of, (*value.shape, *value.stride())))
        symbolic = isinstance(value, symbolic_sizes.SymbolicNumber)
        return index, symbolic_sizes.expression(value) if symbolic else repr(value)


# ---------------------------------------------------------------- descriptions for messages


def source_line(node: Node) -> str:
    """Returns ``file:line: code`` of the last frame of the user's code that made the node; "" without a stack trace."""
    lines = traced_lines(node.meta.get("stack_trace") or "")
    own = [line for line in lines if "site-packages/torch/" not in line.path] or lines
    return f"{own[-1].place}: {own[-1].code}" if own else ""


def describe(node: Node) -> str:
    """Describes a call in an error message: the FX node, its target, its arguments and the user's source line."""
    where = source_line(node)
    args = ", ".join(_summary(a) for a in (*node.args, *node.kwargs.values()))
    return f"{node.name} = {node.target}({args})" + (f" (at {where})" if where else "")


def _summary(argument: Any) -> str:
    if not isinstance(argument, Node):
        return repr(argument)
    value = argument.meta.get("val")
    if isinstance(value, torch.Tensor):
        return f"{argument.name}: {str(value.dtype).removeprefix('torch.')}{shape_text(value.shape)}"
    return f"{argument.name}: {without_symbols(str(value))}"


# ---------------------------------------------------------------- rewriting

_ORIGIN = ("nn_module_stack", "stack_trace")


def origin(node: Node) -> dict[str, Any]:
    """Returns the module stack and the stack trace of a node, as far as it has them."""
    return {key: node.meta[key] for key in _ORIGIN if key in node.meta}


def set_origin(graph: Graph, source: Node) -> None:
    """Gives every node of a traced graph the module stack and the stack trace of the call that it replaces."""
    kept = origin(source)
    for node in graph.nodes:
        for key in _ORIGIN:
            node.meta.pop(key, None)
        node.meta.update(kept)


def splice(graph: Graph, node: Node, inputs: Sequence[Node], traced: Graph) -> tuple[Any, dict[Node, None]]:
    """Copies ``traced``, which computes the results of ``node`` from ``inputs``, in front of ``node``.

    Returns:
        the results of the copy, in the structure that ``traced`` returns, and the new nodes in order.
    """
    env: dict[Node, Any] = {}
    results: Any = None
    source = {
        metadata.SOURCE_NAME: node.meta.get(metadata.SOURCE_NAME, node.name),
        metadata.SOURCE_TEXT: node.meta.get(metadata.SOURCE_TEXT) or str(node.format_node()),
        metadata.SOURCE_TARGET: node.meta.get(metadata.SOURCE_TARGET) or str(node.target),
    }
    stack = origin(node)
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


def replace(graph: Graph, node: Node, results: Any, made: dict[Node, None]) -> None:
    """Replaces ``node`` by ``results`` and erases it.

    A result that is among ``made``, the new nodes, gets the name of the node that it replaces. It leaves ``made``, so
    that it keeps this name if it replaces a second node. If the node makes symbols for sizes that depend on data, the
    result defines them, because other nodes use them.
    """
    if isinstance(results, (list, tuple)):
        if not isinstance(node.meta.get("val"), torch.Tensor):
            for user in list(node.users):  # each is a getitem, whose result may be a list too
                replace(graph, user, results[cast(int, user.args[1])], made)
            graph.erase_node(node)
            return
        results = results[0]
    node.replace_all_uses_with(results)
    graph.erase_node(node)
    if results in made:
        del made[results]
        results.name = node.name
        value = {"val": node.meta["val"]} if makes_symbols(node) else {}
        results.meta = {**results.meta, **value, metadata.SOURCE_NAME: node.name}
