"""Tests that the log times stages, records which failed, and holds the facts for the report."""

import pytest

from fx_onnx.program.export_log import ExportLog, print_line


def test_stages_are_timed_and_the_failed_one_is_recorded() -> None:
    log = ExportLog(stages=("capture", "decompose", "translate"))
    with log.stage("capture"):
        pass
    with pytest.raises(ValueError, match="broken"), log.stage("decompose"):
        raise ValueError("broken")
    facts = log.facts(ValueError("broken"))
    assert [stage.name for stage in facts.stages] == ["capture", "decompose", "translate"]
    assert {stage.name: stage.ok for stage in facts.stages if stage.ok is not None} == {
        "capture": True,
        "decompose": False,
    }
    assert "ValueError: broken" in str(facts.error)
    assert facts.model is None


def test_decisions_are_notes_of_their_stage(capfd: pytest.CaptureFixture[str]) -> None:
    log = ExportLog(verbose=True, stages=("capture", "save"))
    with log.stage("capture"):
        log.decided("capture", "first")
        log.decided("capture", "second")
    log.decided("save", "skipped: f=None")
    assert [stage.note for stage in log.facts().stages] == ["first; second", "skipped: f=None"]
    assert capfd.readouterr().out == f"[fx_onnx] capture: {log.seconds['capture']:.2f} s; first; second\n"


def test_versions_include_every_package_involved() -> None:
    assert {"fx_onnx", "torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "python"} <= set(
        ExportLog().facts().versions
    )


def test_console_lines_are_ascii(capfd: pytest.CaptureFixture[str]) -> None:
    print_line("größe")
    assert capfd.readouterr().out == "[fx_onnx] gr??e\n"
