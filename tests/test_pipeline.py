"""The line runs its stages in order and tells the log."""

import pytest
import torch
from torch import nn

from fx_onnx import TranslationError, pipeline
from fx_onnx.capture.request import parse_request
from fx_onnx.passes import module_functions
from fx_onnx.program.export_log import ExportLog
from tests.compare import assert_close

X = torch.randn(2, 3)


def test_stages_in_order_with_what_they_decided() -> None:
    log = ExportLog()
    program = pipeline.run(parse_request(nn.Linear(3, 2).eval(), (X,)), 20, {}, True, True, log)
    assert list(log.seconds) == ["capture", "functionalize", "decompose", "translate", "optimize", "verify"]
    assert log.program is program
    assert log.operators_before == {"aten.linear.default": 1}
    assert log.verification is not None
    assert log.verification.ok


def test_a_failing_stage_is_noted() -> None:
    def broken(op: object, input: object, weight: object, bias: object = None) -> object:
        raise KeyError("inside")

    log = ExportLog()
    table = {torch.ops.aten.linear.default: broken}
    with pytest.raises(TranslationError, match="KeyError: 'inside'"):
        pipeline.run(parse_request(nn.Linear(3, 2).eval(), (X,)), 20, table, True, False, log)
    assert log.failed == "translate"


def test_an_open_fake_mode_of_the_caller_does_not_matter() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    module = nn.Sequential(nn.Linear(3, 2), nn.GELU()).eval()
    request = parse_request(torch.export.export(module, (X,)))
    with FakeTensorMode():
        program = pipeline.run(request, 20, {}, True, False, ExportLog())
    assert_close(program(X)[0], module(X))


def test_modules_that_stay_inline_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_functions._Call, "is_convex", lambda self, span: False)
    log, module = ExportLog(), nn.Sequential(nn.Linear(3, 2), nn.ReLU()).eval()
    pipeline.run(parse_request(module, (X,)), 20, {}, True, False, log, {nn.Linear})
    assert log.notes["optimize"] == "modules left inline: 0"
