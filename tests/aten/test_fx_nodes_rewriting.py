"""Edits of FX graphs."""

from __future__ import annotations

import operator

import torch
from torch.fx import Graph, GraphModule, Node

from fx_onnx.aten.fx_nodes import origin, replace, set_origin, splice
from fx_onnx.onnx_model import metadata

aten = torch.ops.aten


def _program() -> tuple[Graph, Node]:
    """Returns a graph that returns relu(x), and its call."""
    graph = Graph()
    x = graph.placeholder("x")
    call = graph.call_function(aten.relu.default, (x,))
    call.meta = {"val": torch.zeros(2), "stack_trace": "here", "nn_module_stack": {"a": ("b", "C")}}
    graph.output(call)
    return graph, call


def _replacement() -> Graph:
    """Returns a graph that computes x * (x > 0)."""
    graph = Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(aten.mul.Tensor, (x, graph.call_function(aten.gt.Scalar, (x, 0)))))
    return graph


def test_a_call_is_replaced_by_a_graph() -> None:
    graph, call = _program()
    name, text = call.name, str(call.format_node())
    results, made = splice(graph, call, call.all_input_nodes, _replacement())
    replace(graph, call, results, made)
    graph.lint()
    calls = [node for node in graph.nodes if node.op == "call_function"]
    assert [node.target for node in calls] == [aten.gt.Scalar, aten.mul.Tensor]
    assert calls[-1].name == name
    for node in calls:
        assert node.meta[metadata.SOURCE_NAME] == name and node.meta[metadata.SOURCE_TEXT] == text
        assert node.meta["stack_trace"] == "here"
    x = torch.tensor([-1.0, 2.0])
    assert GraphModule({}, graph)(x).tolist() == [0.0, 2.0]


def test_several_results_replace_the_getitems() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    pair = graph.call_function(aten.aminmax.default, (x,))
    pair.meta["val"] = (torch.zeros(()), torch.zeros(()))
    items = [graph.call_function(operator.getitem, (pair, index)) for index in (0, 1)]
    for item in items:
        item.meta["val"] = torch.zeros(())
    graph.output(tuple(items))
    with graph.inserting_before(pair):
        new = [graph.call_function(target, (x,)) for target in (aten.amin.default, aten.amax.default)]
    replace(graph, pair, tuple(new), dict.fromkeys(new))
    graph.lint()
    least, largest = GraphModule({}, graph)(torch.tensor([3.0, 1.0]))
    assert (least.item(), largest.item()) == (1.0, 3.0)


def test_the_origin_of_a_call_is_that_of_its_replacement() -> None:
    graph, call = _program()
    traced = _replacement()
    for node in traced.nodes:
        node.meta["stack_trace"] = "inside the decomposition"
    set_origin(traced, call)
    assert all(origin(node) == origin(call) for node in traced.nodes)
    assert origin(next(iter(graph.nodes))) == {}
