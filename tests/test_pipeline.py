"""The line runs its stages in order and tells the journal."""

import pytest
import torch
from torch import nn

from fx_onnx import TranslationError, line
from fx_onnx.arguments import parse_request
from fx_onnx.journal import Journal
from fx_onnx.passes import functions
from tests.compare import assert_close

X = torch.randn(2, 3)


def test_stages_in_order_with_what_they_decided() -> None:
    journal = Journal()
    program = line.run(parse_request(nn.Linear(3, 2).eval(), (X,)), 20, {}, True, True, journal)
    assert list(journal.seconds) == ["capture", "functionalize", "decompose", "translate", "optimize", "verify"]
    assert journal.program is program
    assert journal.operators_before == {"aten.linear.default": 1}
    assert journal.verification is not None
    assert journal.verification.ok


def test_a_failing_stage_is_noted() -> None:
    def broken(op: object, input: object, weight: object, bias: object = None) -> object:
        raise KeyError("inside")

    journal = Journal()
    table = {torch.ops.aten.linear.default: broken}
    with pytest.raises(TranslationError, match="KeyError: 'inside'"):
        line.run(parse_request(nn.Linear(3, 2).eval(), (X,)), 20, table, True, False, journal)
    assert journal.failed == "translate"


def test_an_open_fake_mode_of_the_caller_does_not_matter() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    module = nn.Sequential(nn.Linear(3, 2), nn.GELU()).eval()
    request = parse_request(torch.export.export(module, (X,)))
    with FakeTensorMode():
        program = line.run(request, 20, {}, True, False, Journal())
    assert_close(program(X)[0], module(X))


def test_modules_that_stay_inline_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions._Call, "is_convex", lambda self, span: False)
    journal, module = Journal(), nn.Sequential(nn.Linear(3, 2), nn.ReLU()).eval()
    line.run(parse_request(module, (X,)), 20, {}, True, False, journal, {nn.Linear})
    assert journal.notes["optimize"] == "modules left inline: 0"
