"""The findings of an export are one warning; those of a failed export are in the log."""

from __future__ import annotations

import logging
import warnings

import pytest
import torch

import fx_onnx
from fx_onnx.messages.errors import OnnxExporterWarning
from fx_onnx.messages.findings import collect_findings, current_findings, warn
from fx_onnx.messages.message_ids import Finding, MessageId
from tests.capture.sample_modules import Function


class Mode(Function):
    """Reads its mode, so that the export warns of training mode."""

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        assert self.training
        return super().forward(*args)  # type: ignore[no-any-return]


def branches(x: torch.Tensor) -> torch.Tensor:
    first, second = x.split(x.shape[1] // 2, dim=1)
    return first + second if x.shape[0] <= 5 else first - second


def test_an_export_issues_one_warning_at_the_line_of_the_call() -> None:
    model = Mode(branches)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = fx_onnx.export(model, (torch.ones(4, 8),), dynamic_shapes=({0: "batch", 1: "width"},))
    (warning,) = caught
    assert warning.category is OnnxExporterWarning
    assert warning.filename == __file__
    lines = str(warning.message).splitlines()
    assert lines[0] == "The export has 2 findings; fx-onnx explain ID explains each."
    assert lines[1:3] == ["The call:", f"- {program.findings[0]}"]
    assert lines[3:] == ["Dynamic dims:", *(f"- {finding}" for finding in program.findings[1:])]
    assert [finding.id for finding in program.findings] == ["FX1011", "FX1202"]
    line = branches.__code__.co_firstlineno + 1
    assert program.findings[1].place == f"{__file__}:{line + 1}"
    assert [(dim.name, dim.sizes) for dim in program.dims] == [("batch", "at most 5"), ("width", "even")]
    assert str(program.dims[1]) == f"width: even, {__file__}:{line}: first, second = x.split(x.shape[1] // 2, dim=1)"


def test_no_finding_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = fx_onnx.export(torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),))
    assert program.findings == []


def test_removed_keywords_are_one_warning_of_their_own() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fx_onnx.export(
            torch.nn.Dropout(), (torch.ones(1, 2),), enable_onnx_checker=True, use_external_data_format=False
        )
    assert [each.category for each in caught] == [FutureWarning, OnnxExporterWarning]
    assert all(name in str(caught[0].message) for name in ("enable_onnx_checker", "use_external_data_format"))


def test_the_findings_of_a_failure_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fx_onnx.export")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(fx_onnx.CaptureError) as error:
            fx_onnx.export(Mode(lambda x: [x] * int(x.sum())), (torch.ones(2),))
    assert [finding.id for finding in error.value.findings] == ["FX1011"]
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.INFO] == [
        "Mode is in training mode; call model.eval() before the export unless you want to export training mode. "
        "[FX1011]"
    ]


def test_outside_of_an_export_a_finding_is_a_warning() -> None:
    with pytest.warns(OnnxExporterWarning, match=r"^a text \[fx-onnx explain FX1202\]$"):
        warn("a text", MessageId.SIZE_CONDITION)


def test_contexts_nest_and_repeat_nothing() -> None:
    with collect_findings(as_warning=False) as outer:
        with collect_findings():
            warn("first", MessageId.STATIC_DIM)
            warn("first", MessageId.STATIC_DIM)
            assert [each.text for each in current_findings()] == ["first"]
        warn("second (model.py:3: x)", MessageId.STATIC_DIM)
    assert outer == [Finding(MessageId.STATIC_DIM, "first"), Finding(MessageId.STATIC_DIM, "second (model.py:3: x)")]
    assert [each.place for each in outer] == ["", "model.py:3"]
    assert current_findings() == ()


def test_hidden_findings_are_not_told(recwarn: pytest.WarningsRecorder) -> None:
    with collect_findings(hidden=(MessageId.NAMES,)) as found:
        warn("a", MessageId.NAMES)
    assert len(found) == 1 and not recwarn.list
    with collect_findings(hidden=(MessageId.NAMES,)):
        warn("a", MessageId.NAMES)
        warn("b", MessageId.FILE)
    (warning,) = recwarn.list
    assert str(warning.message).startswith("b")
