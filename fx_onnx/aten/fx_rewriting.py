"""Edits of FX graphs: insert a traced graph before a node, replace the node by its results, copy its origin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate

from fx_onnx.aten.fx_nodes import makes_symbols
from fx_onnx.core import metadata

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
