"""Alias analysis: bases of views, and values that a write makes stale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import Node

from fx_onnx.aten.alias_analysis import AliasTracker
from fx_onnx.messages.errors import MutationError
from tests.modules import FunctionModule


def _tracked(function: Callable[..., Any], *inputs: Tensor) -> tuple[AliasTracker, dict[str, Node]]:
    """Returns a tracker that has tracked the nodes of a captured function except its writes, and the nodes by name."""
    graph = torch.export.export(FunctionModule(function), inputs).graph
    aliases, nodes = AliasTracker(graph), {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        if node.op != "output" and not node.name.endswith("_"):
            aliases.track(node)
    return aliases, nodes


def _views(x: Tensor) -> Tensor:
    y = x.clone()
    first, second = y.view(-1).split(8)
    first.add_(1)
    return second * y.sum()


def test_bases_of_views() -> None:
    aliases, nodes = _tracked(_views, torch.randn(4, 4))
    assert aliases.base(nodes["clone"]) is None
    assert aliases.base(nodes["view"]) is nodes["clone"]
    assert aliases.base(nodes["getitem"]) is nodes["view"]
    assert aliases.is_tracked(nodes["split"]) and not aliases.is_tracked(nodes["mul"])


def test_a_write_makes_views_stale_until_they_are_refreshed() -> None:
    aliases, nodes = _tracked(_views, torch.randn(4, 4))
    assert not aliases.is_stale(nodes["view"])
    aliases.record_write(nodes["clone"])
    assert aliases.is_stale(nodes["view"]) and aliases.is_stale(nodes["getitem_1"])
    assert not aliases.is_stale(nodes["clone"])
    aliases.refresh(nodes["view"])
    assert not aliases.is_stale(nodes["view"]) and aliases.is_stale(nodes["getitem_1"])


def test_the_result_of_a_write_is_the_written_tensor() -> None:
    aliases, nodes = _tracked(_views, torch.randn(4, 4))
    aliases.track_result(nodes["add_"], nodes["getitem"])
    assert aliases.base(nodes["add_"]) is nodes["getitem"]
    assert not aliases.is_stale(nodes["add_"])
    aliases.record_write(nodes["clone"])
    assert aliases.is_stale(nodes["add_"])


def test_written_placeholders() -> None:
    aliases, nodes = _tracked(lambda x, y: (x[0].add_(1), y + 1)[1], torch.randn(2, 2), torch.randn(2))
    assert aliases.written_placeholders() == []
    (x, _) = (node for node in nodes.values() if node.op == "placeholder")
    aliases.record_write(x)
    assert aliases.written_placeholders() == [x]


def test_identified_nodes_are_one_tensor() -> None:
    aliases, nodes = _tracked(_views, torch.randn(4, 4))
    aliases.identify(nodes["mul"], nodes["view"])
    aliases.identify(nodes["view"], nodes["clone"])
    assert aliases.canonical(nodes["mul"]) is nodes["clone"]
    assert aliases.base(nodes["getitem"]) is nodes["clone"]


def test_shared_memory_that_is_not_a_view_is_refused() -> None:
    graph = torch.export.export(FunctionModule(lambda x: (x.clone().add_(1), x * 2)), (torch.randn(2),)).graph
    nodes = {node.name: node for node in graph.nodes}
    nodes["mul"].meta["val"] = nodes["clone"].meta["val"]
    aliases = AliasTracker(graph)
    aliases.track(nodes["clone"])
    with pytest.raises(MutationError, match="mul shares memory that is written in place, but is not a view"):
        aliases.track(nodes["mul"])


def test_a_write_to_one_of_several_new_tensors_in_one_storage_is_refused() -> None:
    graph = torch.export.export(
        FunctionModule(lambda x: (pair := x.aminmax(dim=0), pair[1].add_(1))), (torch.randn(2, 2),)
    ).graph
    nodes = {node.name: node for node in graph.nodes}
    first, second = nodes["getitem"], nodes["getitem_1"]
    second.meta["val"] = first.meta["val"]
    nodes["aminmax"].meta["val"] = (first.meta["val"], first.meta["val"])
    aliases = AliasTracker(graph)
    for name in ("aminmax", "getitem", "getitem_1"):
        aliases.track(nodes[name])
    assert aliases.base(first) is None
    with pytest.raises(MutationError, match=r"shares memory with another result of aten\.aminmax\.default"):
        aliases.base(second)
