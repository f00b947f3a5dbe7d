"""Lowering of vmap regions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import fx_onnx
from fx_onnx.aten.aten_program import AtenProgram, lower_vmap
from fx_onnx.messages.errors import CaptureError, OnnxExporterError, TranslationError
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


@pytest.mark.parametrize(
    ("function", "rank", "error"),
    [
        (lambda x: torch.func.jacrev(lambda v: (v**2).cumsum(0))(x), 1, TranslationError),
        (torch.vmap(torch.nonzero), 2, CaptureError),
    ],
)
def test_a_region_that_torch_cannot_batch_leaves_no_transform(
    function: Callable[..., torch.Tensor], rank: int, error: type[OnnxExporterError]
) -> None:
    with pytest.raises(error, match=r"vmap|values during capture"):
        fx_onnx.export(FunctionModule(function), (torch.ones([4] * rank),), dynamic_shapes=({0: "n"},), progress=False)
    torch.rand(2)  # an error inside of vmap
