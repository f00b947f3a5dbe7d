"""Calls and comparisons of models whose opset the installed ONNX Runtime does not load."""

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx import OnnxExporterError, OnnxExporterWarning
from fx_onnx.onnx_model.opsets import MAXIMUM_OPSET
from fx_onnx.program import session
from fx_onnx.program.session import is_loaded
from tests.compare import assert_close

REFUSED = "does not load opset 20, so onnx's reference evaluator computes the results"


class Gate(nn.Module):
    """Multiplies by a sigmoid, and keeps a running sum, for which ONNX needs a Scan."""

    def __init__(self, scans: bool = False) -> None:
        super().__init__()
        self.linear, self.scans = nn.Linear(4, 4), scans

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 4) to (batch, 4)."""
        y = x * torch.sigmoid(self.linear(x))
        if self.scans:
            y = torch.ops.fx_onnx.selective_scan(y[None], y[None], -torch.ones(4, 2), *[torch.ones(1, 2, 4)] * 2,
                                                 torch.zeros(1, y.size(0), 2))[0][0]  # fmt: skip
        return y


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the installed ONNX Runtime refuse every opset."""
    monkeypatch.setattr(session, "is_loaded", lambda opset: False)


def test_opsets_that_the_runtime_loads() -> None:
    assert is_loaded(20)
    assert sorted(range(18, MAXIMUM_OPSET + 1), key=is_loaded, reverse=True) == list(range(18, MAXIMUM_OPSET + 1))


@pytest.mark.usefixtures("refused")
def test_the_evaluator_computes_the_results_and_a_warning_says_so() -> None:
    module, x = Gate().eval(), torch.randn(3, 4)
    program = fx_onnx.export(module, (x,))
    with pytest.warns(OnnxExporterWarning, match=REFUSED):
        assert_close(program(x), module(x))
    assert_close(program.compute_values(["x"], (x,)), x)


@pytest.mark.usefixtures("refused")
def test_a_verification_says_so() -> None:
    with pytest.warns(OnnxExporterWarning, match=REFUSED):
        found = fx_onnx.export(Gate().eval(), (torch.randn(3, 4),)).verify()
    assert found.ok
    assert REFUSED in str(found)


@pytest.mark.usefixtures("refused")
def test_a_difference_is_found_in_the_evaluator() -> None:
    program = fx_onnx.export(Gate().eval(), (torch.randn(3, 4),))
    sigmoid = next(node for node in program.model.graph if node.op_type == "Sigmoid")
    sigmoid.op_type = "Tanh"
    with pytest.warns(OnnxExporterWarning, match=REFUSED):
        found = program.verify()
    assert found.cause is not None
    assert "sigmoid" in found.cause.text


@pytest.mark.usefixtures("refused")
def test_what_the_evaluator_computes_wrongly_is_refused() -> None:
    module = Gate(scans=True).eval()
    program = fx_onnx.export(module, (torch.randn(4, 4),))
    with pytest.raises(OnnxExporterError, match=r"cannot run Scan .*: the evaluator scans the first axis only"):
        program(torch.randn(4, 4))
