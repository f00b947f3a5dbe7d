"""Gives the fake tensors of a loaded program the storages that they share.

The fake tensors of a captured graph share storages where the real tensors would, which the alias analysis relies on.
torch.export.save does not keep this: in a program from torch.export.load, each fake tensor has a storage of its own.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fx_onnx.aten.alias_analysis import find_functional_variant, is_write, writes_by_storage, written_arguments
from fx_onnx.aten.fx_nodes import attribute, meta_arguments, region_body
from fx_onnx.torch_internals.torch_private import OpOverload, storage_ids

__all__ = ["share_storages"]

_COMPUTED = {"placeholder", "call_function"}


def share_storages(graph: Graph) -> None:
    """Computes the fake results of views and of writes again where their storages are not those of their arguments.

    Only ``meta["val"]`` of the nodes changes, and only in a graph that writes in place, or in such a body of a branch
    or a loop. A program that torch captured in this process stays as it is.
    """
    for node in graph.find_nodes(op="get_attr"):
        if isinstance(body := attribute(node), GraphModule):
            share_storages(body.graph)
    if writes_by_storage(graph):
        _share(graph)


def _share(graph: Graph) -> None:
    for node in graph.nodes:
        if not all("val" in known.meta for known in (node, *node.all_input_nodes) if known.op in _COMPUTED):
            continue  # a user's own pass added a call without it
        if (region := region_body(node)) is not None:
            node.meta["val"] = _region_result(*region)
        elif _may_be_view(node) and storage_ids(node.meta["val"]).isdisjoint(storage_ids(meta_arguments(node))):
            node.meta["val"] = _result(node)


def _region_result(body: Graph, operands: Any) -> Any:
    """Returns the fake results of a region, whose body runs on the tensors of the graph around it."""
    for placeholder, operand in zip(body.find_nodes(op="placeholder"), operands, strict=True):
        if isinstance(operand, Node):
            placeholder.meta["val"] = operand.meta["val"]
    _share(body)
    return torch.fx.map_arg(body.output_node().args[0], lambda result: result.meta["val"])


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
    return target(*args, **kwargs)
