"""The graph as data: modules as a tree, nodes with their sources, weights counted for the module that has them."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.report.graph_facts import graph_facts


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(self.fc(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.blocks[0](x)


def test_modules_are_a_tree_with_nodes_and_parameters() -> None:
    program = fx_onnx.export(Net().eval(), (torch.randn(2, 4),), input_names=["x"])
    (facts,) = graph_facts(program.model)
    labels = [(module.path, module.label, module.kind.rpartition(".")[2]) for module in facts.modules]
    assert labels == [
        ("", "", "Net"),
        ("blocks.0", "blocks.0", "Block"),
        ("blocks.0.fc", "fc", "Linear"),
        ("blocks.1", "blocks.1", "Block"),
        ("blocks.1.fc", "fc", "Linear"),
        ("blocks.0@1", "blocks.0@1", "Block"),
        ("blocks.0.fc@1", "blocks.0.fc@1", "Linear"),
    ]
    assert [facts.modules[index].path for index in facts.modules_of(2)] == ["blocks.0.fc", "blocks.0", ""]
    assert [module.nodes for module in facts.modules] == [6, 2, 1, 2, 1, 2, 1]
    # the second call of a module reads the same weights, which count once
    assert [module.parameters for module in facts.modules] == [40, 20, 20, 20, 20, 0, 0]
    assert [facts.values[index].name for index in facts.inputs] == ["x"]


def test_nodes_name_their_operator_and_their_line() -> None:
    program = fx_onnx.export(Net().eval(), (torch.randn(2, 4),), dynamic_shapes=({0: "batch"},))
    (facts,) = graph_facts(program.model)
    node = facts.nodes[1]
    assert (node.op_type, facts.modules[node.module].path) == ("Gelu", "blocks.0")
    assert facts.values[node.outputs[0]].type == "float[batch, 4]"
    assert node.source is not None
    source = facts.sources[node.source]
    assert source.operators == ("aten.gelu.default",)
    innermost = source.frames[0]
    assert innermost.place.startswith("tests/report/test_graph_facts.py:")
    assert (innermost.function, innermost.code) == ("forward", "return torch.nn.functional.gelu(self.fc(x))")
    gemm = facts.nodes[0]
    assert [facts.values[index].is_initializer for index in gemm.inputs] == [False, True, True]


class Masked(nn.Module):
    """Computes from a mask what every layer computes, and a skip connection that only other modules read."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.fc(x).relu()
        return hidden.tanh() + (1.0 - mask) * -1e4, hidden


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Masked() for _ in range(3)])

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        total = x
        for layer in self.layers:
            x, hidden = layer(x, mask)
            total = total + hidden
        return total + x


def test_nodes_that_several_modules_use_belong_to_the_module_around_them() -> None:
    program = fx_onnx.export(Layers().eval(), (torch.randn(2, 4), torch.ones(4)))
    (facts,) = graph_facts(program.model)
    assert [(module.path, module.nodes) for module in facts.modules if module.path.count(".") == 1] == [
        ("layers.0", 4),
        ("layers.1", 4),
        ("layers.2", 4),
    ]
    own = [node.op_type for node in facts.nodes if not facts.modules[node.module].path]
    assert own == ["Sub", "Mul", *["Add"] * 4]


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.fc(x).relu(), lambda x: x - 1, (x,))


def test_bodies_of_control_flow_are_modules_inside_their_node() -> None:
    program = fx_onnx.export(Branches().eval(), (torch.randn(2, 3),), optimize=False)
    (facts,) = graph_facts(program.model)
    (node,) = (each for each in facts.nodes if each.op_type == "If")
    assert node.body is not None
    bodies = [module.label for module in facts.modules if module.parent == node.body]
    assert bodies == ["then_branch", "else_branch"]
    relu = next(each for each in facts.nodes if each.op_type == "Relu")
    assert node.body in list(facts.modules_of(relu.module))


def test_local_functions_are_graphs_of_their_own() -> None:
    program = fx_onnx.export(Net().eval(), (torch.randn(2, 4),), export_modules_as_functions={Block})
    main, function = graph_facts(program.model)
    assert main.name == ""
    assert function.name.endswith("::Block")
    assert [node.op_type for node in function.nodes] == ["Gemm", "Gelu"]


def test_a_model_of_another_exporter_is_one_module() -> None:
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    proto = onnx.parser.parse_model(text)
    proto.graph.node[0].metadata_props.add(key="pkg.torch.onnx.name_scopes", value="not a list")
    (facts,) = graph_facts(ir.from_proto(proto))
    assert [(module.path, module.nodes) for module in facts.modules] == [("", 1)]
    assert facts.nodes[0].source is None
