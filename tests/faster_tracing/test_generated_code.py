"""The code of captured graphs."""

from __future__ import annotations

import logging
from unittest import mock

import pytest
import torch
from torch import fx, nn

from fx_onnx.faster_tracing.generated_code import REPLACEMENTS
from fx_onnx.faster_tracing.replacement import replaced
from tests.torch_versions import needs


def _compilations(module: nn.Module) -> int:
    with mock.patch.object(fx.graph_module, "_forward_from_src", wraps=fx.graph_module._forward_from_src) as compiled:
        torch.export.export(module, (torch.ones(2, 4),))
    return int(compiled.call_count)


@needs("known sources")
def test_code_is_generated_for_the_program_alone(caplog: pytest.LogCaptureFixture) -> None:
    module = nn.Linear(4, 4)
    torch.export.export(module, (torch.ones(2, 4),))
    often = _compilations(module)
    with replaced(REPLACEMENTS):
        assert _compilations(module) == 1
        with caplog.at_level(logging.DEBUG, "torch.export._trace"):  # it prints the code
            assert _compilations(module) == often
    assert "def forward" in caplog.text


def test_elsewhere_code_is_generated_at_once() -> None:
    with replaced(REPLACEMENTS):
        module = fx.symbolic_trace(nn.Sequential(nn.ReLU()))
        node = module.graph.find_nodes(op="call_module", target="0")[0]
        node.op, node.target = "call_function", torch.sigmoid
        module.recompile()
    assert "sigmoid" in module.code and module(torch.zeros(1)) == 0.5
