"""Rewriting of single graphs that write in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from fx_onnx.aten.alias_analysis import is_write
from fx_onnx.aten.functional_graph import GraphAttributes, functional_graph, rewrite_writes
from fx_onnx.messages.errors import MutationError
from tests.modules import FunctionModule

aten = torch.ops.aten


def _captured(function: Callable[..., Any], *inputs: Tensor) -> GraphModule:
    return torch.export.export(FunctionModule(function), inputs).graph_module


def test_a_functional_graph_drops_writes_to_placeholders() -> None:
    def function(x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2

    graph = functional_graph(_captured(function, torch.zeros(2)).graph)
    assert not any(is_write(node.target) for node in graph.nodes)
    x = torch.zeros(2)
    (result,) = GraphModule({}, graph)(x)
    assert result.tolist() == [2.0, 2.0] and x.tolist() == [0.0, 0.0]


def test_the_final_values_of_written_placeholders_are_returned_last() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        y[0].fill_(5.0)
        return x + 1

    old = _captured(function, torch.zeros(2), torch.zeros(2, 2)).graph
    new, written = rewrite_writes(old, GraphAttributes())
    placeholders = [node for node in old.nodes if node.op == "placeholder"]
    assert list(written) == [placeholders[1]]
    _, y = GraphModule({}, new)(torch.zeros(2), torch.zeros(2, 2))
    assert y.tolist() == [[5.0, 5.0], [0.0, 0.0]]


def test_a_body_is_rewritten_once() -> None:
    module = _captured(lambda x: x.clone().add_(1), torch.zeros(2))
    attributes = GraphAttributes()
    names = [attributes.add_body("true_graph_0", module) for _ in range(2)]
    assert names == ["true_graph_0"] * 2 and list(attributes.graphs) == ["true_graph_0"]
    assert not any(is_write(node.target) for node in attributes.graphs["true_graph_0"].nodes)


def test_a_body_that_writes_to_its_operand_is_refused() -> None:
    module = _captured(lambda x: x.add_(1), torch.zeros(2))
    with pytest.raises(MutationError, match="The body branch writes in place to a tensor from outside the body"):
        GraphAttributes().add_body("branch", module)


def test_tensors_have_unique_names() -> None:
    attributes = GraphAttributes()
    names = [attributes.add_tensor("lifted", torch.zeros(1)) for _ in range(2)]
    assert len(set(names)) == 2 and set(names) == set(attributes.tensors)


def test_an_assignment_to_data_is_refused() -> None:
    """torch.export keeps only a check of the types, whose result is not used."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        x.data = y
        return x + 1

    with pytest.raises(MutationError, match=r"assignment to Tensor\.data.*write tensor\.copy_\(value\)"):
        functional_graph(_captured(function, torch.zeros(2), torch.ones(2)).graph)
