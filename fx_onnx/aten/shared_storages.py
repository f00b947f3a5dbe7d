"""Gives the fake tensors of a program that writes in place the storages that they share.

The alias analysis relies on fake tensors that share storages where the real tensors would. There are two exceptions.
In a program from torch.export.load, each fake tensor has a storage of its own. And while torch captures, an operator
such as ``reshape`` makes a copy where it cannot tell that all sizes allow a view; the sizes of the example decide here.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fx_onnx.aten.alias_analysis import find_functional_variant, is_write, writes_by_storage, written_arguments
from fx_onnx.aten.fx_nodes import attribute, meta_arguments, region_body
from fx_onnx.torch_internals.guard_private import answers_of_example
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import FakeTensor, OpOverload, storage_ids

__all__ = ["share_storages", "written_copies"]

_COPIES = frozenset(
    {
        aten.contiguous.default, aten.flatten.using_ints, aten.ravel.default, aten.reshape.default,
        aten.reshape_as.default, aten.to.device, aten.to.dtype, aten.to.dtype_layout, aten.to.other,
    }
)  # fmt: skip
"""Operators that return a view if the strides of their argument allow one, and a copy otherwise."""

_COMPUTED = {"placeholder", "call_function"}


def share_storages(graph: Graph) -> None:
    """Computes the fake results of views and of writes again where their storages are not those of their arguments.

    Only ``meta["val"]`` of the nodes changes, and only in a graph that writes in place, or in such a body of a branch
    or a loop. A second call changes nothing.
    """
    values = (node.meta.get("val") for node in graph.find_nodes(op="placeholder"))
    modes = (value.fake_mode for value in values if isinstance(value, FakeTensor))
    with answers_of_example(getattr(next(modes, None), "shape_env", None)):
        _share_written(graph)


def _share_written(graph: Graph) -> None:
    for node in graph.find_nodes(op="get_attr"):
        if isinstance(body := attribute(node), GraphModule):
            _share_written(body.graph)
    if writes_by_storage(graph):
        _share(graph)


def written_copies(module: GraphModule) -> dict[Node, bool]:
    """Returns which calls may return a view or a copy that a later write tells apart, and whether it is a view.

    The write is into the result or into the argument.
    """
    copies, written = dict[Node, bool](), set[int]()
    for node in _backwards(module):
        written |= storage_ids([argument.meta.get("val") for argument in written_arguments(node)])
        if written and node.target in _COPIES and "val" in node.meta:
            given, result = storage_ids(meta_arguments(node)), storage_ids(node.meta["val"])
            if not written.isdisjoint(given | result):
                copies[node] = not given.isdisjoint(result)
    return copies


def _backwards(module: GraphModule) -> Iterator[Node]:
    """Yields the nodes of a graph and of the bodies in it from the last to the first."""
    for node in reversed(module.graph.nodes):
        if node.op == "get_attr" and isinstance(body := attribute(node), GraphModule):
            yield from _backwards(body)
        yield node


def _share(graph: Graph) -> None:
    for node in graph.nodes:
        if not all("val" in known.meta for known in (node, *node.all_input_nodes) if known.op in _COMPUTED):
            continue  # a user's own pass added a call without it
        if (region := region_body(node)) is not None:
            node.meta["val"] = _region_result(*region)
        elif _may_be_view(node) and _is_apart(node):
            node.meta["val"] = _result(node)


def _region_result(body: Graph, operands: Any) -> Any:
    """Returns the fake results of a region, whose body runs on the tensors of the graph around it."""
    for placeholder, operand in zip(body.find_nodes(op="placeholder"), operands, strict=True):
        if isinstance(operand, Node):
            placeholder.meta["val"] = operand.meta["val"]
    _share(body)
    return torch.fx.map_arg(body.output_node().args[0], lambda result: result.meta["val"])


def _is_apart(node: Node) -> bool:
    """Returns whether the result of a call has storages, and none of an argument."""
    own = storage_ids(node.meta["val"])
    return bool(own) and own.isdisjoint(storage_ids(meta_arguments(node)))


def _may_be_view(node: Node) -> bool:
    """Returns whether the result of a call may share the memory of an argument: an item, or by the schema."""
    target = node.target
    if target is operator.getitem:
        return True
    return isinstance(target, OpOverload) and any(result.alias_info is not None for result in target._schema.returns)


def _result(node: Node) -> Any:
    """Returns the fake result of a call; the written tensor itself for a write, whose elements it does not touch."""
    target: Any = node.target
    if is_write(target):
        written = [argument.meta["val"] for argument in written_arguments(node)]
        return written[0] if len(written) == 1 else node.meta["val"]
    if torch.Tag.inplace_view in getattr(target, "tags", ()):
        target = find_functional_variant(target) or target  # the argument keeps its shape
    args, kwargs = meta_arguments(node)
    result = target(*args, **kwargs)
    if target in _COPIES:  # a view of equal sizes has the symbols of its argument
        return result.as_strided(node.meta["val"].shape, result.stride())
    return result
