"""The model as text: ONNX's textual syntax, and source lines as doc_string."""

from __future__ import annotations

import onnx
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.files.serialization import add_doc_strings, graph_text


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = torch.cond(x.sum() > 0, lambda a: self.linear(a) * 2, lambda a: a - 1, (x,))
        return result


def test_the_text_is_onnx_syntax_without_the_values_of_weights() -> None:
    program = fx_onnx.export(nn.Sequential(nn.Linear(64, 64), nn.ReLU()).eval(), (torch.randn(2, 64),))
    text = graph_text(program.model)
    parsed = onnx.parser.parse_model(text)
    assert [node.op_type for node in parsed.graph.node] == ["Gemm", "Relu"]
    assert [list(tensor.dims) for tensor in parsed.graph.initializer] == [[64, 64], [64]]
    assert len(text) < 2000
    assert program.model.graph.initializers["0.weight"].const_value.raw.shape == (64, 64)


def test_every_node_gets_its_source_lines() -> None:
    program = fx_onnx.export(Branch().eval(), (torch.randn(2, 64),))
    add_doc_strings(program.model)
    proto = program.model_proto
    (branching,) = [node for node in proto.graph.node if node.op_type == "If"]
    bodies = [attribute.g for attribute in branching.attribute]
    nodes = [*proto.graph.node, *(node for body in bodies for node in body.node)]
    assert all("test_serialization_text.py(" in node.doc_string for node in nodes)
    assert branching.doc_string.splitlines()[0] == "tests/files/test_serialization_text.py(19): forward"
