"""Metadata of nodes: the keys and formats of PyTorch's "torch.export-based ONNX Exporter" page."""

import ast

import torch
from torch import Tensor, nn

from fx_onnx.onnx_model import metadata

NODE_KEYS = {
    "namespace",
    "pkg.torch.onnx.class_hierarchy",
    "pkg.torch.onnx.fx_node",
    "pkg.torch.onnx.name_scopes",
    "pkg.torch.onnx.stack_trace",
}


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Inner())

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x) + 1


def _nodes() -> dict[str, torch.fx.Node]:
    program = torch.export.export(Outer(), (torch.randn(2),))
    return {node.name: node for node in program.graph.nodes}


def test_a_node_inside_modules() -> None:
    props = metadata.of_fx_node(_nodes()["relu"])
    assert set(props) == NODE_KEYS
    scopes = ast.literal_eval(props["pkg.torch.onnx.name_scopes"])
    classes = ast.literal_eval(props["pkg.torch.onnx.class_hierarchy"])
    assert scopes == ["", "blocks", "blocks.0", "relu"]
    assert classes[0].endswith("test_metadata.Outer")
    assert classes[1:] == ["torch.nn.modules.container.Sequential", classes[2], "aten.relu.default"]
    assert props["namespace"].split("/")[-1] == "relu: aten.relu.default"
    assert props["namespace"].startswith(f": {classes[0]}/blocks: {classes[1]}/")
    assert "target=torch.ops.aten.relu.default" in props["pkg.torch.onnx.fx_node"]
    assert "test_metadata.py" in props["pkg.torch.onnx.stack_trace"]


def test_the_second_call_of_a_module_is_another_scope() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(self.inner(x))

    nodes = torch.export.export(Twice(), (torch.randn(2),)).graph.find_nodes(
        op="call_function", target=torch.ops.aten.relu.default
    )
    scopes = [ast.literal_eval(metadata.of_fx_node(node)[metadata.NAME_SCOPES]) for node in nodes]
    assert scopes == [["", "inner", "relu"], ["", "inner@1", "relu_1"]]


def test_scopes_and_classes_are_of_one_length() -> None:
    for node in _nodes().values():
        if node.op == "call_function":
            props = metadata.of_fx_node(node)
            scopes = ast.literal_eval(props[metadata.NAME_SCOPES])
            assert len(scopes) == len(ast.literal_eval(props[metadata.CLASS_HIERARCHY]))


def test_a_decomposed_node_bears_its_source() -> None:
    node = _nodes()["relu"]
    node.meta.update(
        {metadata.SOURCE_NAME: "gelu", metadata.SOURCE_TARGET: "aten.gelu.default", metadata.SOURCE_TEXT: "%gelu"}
    )
    props = metadata.of_fx_node(node)
    assert props["namespace"].endswith("/gelu: aten.gelu.default")
    assert props["pkg.torch.onnx.fx_node"] == "%gelu"
    assert ast.literal_eval(props["pkg.torch.onnx.name_scopes"])[-1] == "gelu"


def test_a_node_without_a_module_stack() -> None:
    graph = torch.fx.Graph()
    node = graph.call_function(torch.ops.aten.relu.default, (graph.placeholder("x"),))
    props = metadata.of_fx_node(node)
    assert set(props) == NODE_KEYS
    assert props["namespace"] == "relu_default: aten.relu.default"
    assert props["pkg.torch.onnx.stack_trace"] == ""


def test_merging_two_nodes_keeps_both_stories_once() -> None:
    nodes = _nodes()
    first, second = metadata.of_fx_node(nodes["relu"]), metadata.of_fx_node(nodes["add"])
    both = metadata.merged(first, second)
    assert set(both) == NODE_KEYS
    assert both[metadata.FX_NODE] == first[metadata.FX_NODE] + "\n" + second[metadata.FX_NODE]
    assert metadata.merged(first, first) == first
    assert metadata.merged(first, {}) == first


def test_qualified_names() -> None:
    assert metadata.qualified_name(nn.Linear) == "torch.nn.modules.linear.Linear"
    assert metadata.qualified_name("torch.nn.modules.linear.Linear") == "torch.nn.modules.linear.Linear"
    assert metadata.qualified_name(dict) == "dict"
