"""The record that the ATen stages pass on."""

from __future__ import annotations

import torch
from torch.fx import Graph

from fx_onnx.aten.aten_program import AtenProgram
from tests.modules import FunctionModule


def test_a_captured_program_has_the_captured_graph() -> None:
    exported = torch.export.export(FunctionModule(torch.relu), (torch.randn(2),))
    program = AtenProgram.captured(exported)
    assert program.exported_program is exported and program.graph is exported.graph
    assert program.mutations == () and program.graphs == [exported.graph]


def test_the_graphs_are_the_main_graph_and_the_bodies() -> None:
    exported = torch.export.export(FunctionModule(torch.relu), (torch.randn(2),))
    program = AtenProgram.captured(exported)
    body = program.bodies["branch"] = Graph()
    assert program.graphs == [exported.graph, body]
