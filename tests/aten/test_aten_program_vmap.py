"""Lowering of vmap regions."""

from __future__ import annotations

import torch

from fx_onnx.aten.aten_program import AtenProgram, lower_vmap
from fx_onnx.torch_internals.torch_private import OpOverload
from tests.modules import FunctionModule


def test_a_region_becomes_batched_operators() -> None:
    exported = torch.export.export(FunctionModule(torch.vmap(lambda row: row * row.sum())), (torch.randn(3, 4),))
    before = AtenProgram.captured(exported)
    program = lower_vmap(before)
    calls = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert program is not before and all(isinstance(target, OpOverload) for target in calls)
    x = torch.randn(3, 4)
    torch.testing.assert_close(program.exported_program.module()(x), x * x.sum(1, keepdim=True))


def test_a_program_without_a_region_is_returned_as_it_is() -> None:
    program = AtenProgram.captured(torch.export.export(FunctionModule(torch.relu), (torch.randn(2),)))
    assert lower_vmap(program) is program
