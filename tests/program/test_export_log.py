"""Tests that the log times stages, records which failed, and holds the facts for the report."""

import onnx_ir as ir
import pytest

from fx_onnx import ONNXProgram
from fx_onnx.passes.cleanup.identities import eliminate_identities
from fx_onnx.passes.cleanup.redundant_nodes import EliminateDeadCode
from fx_onnx.passes.rewriter import NodeChange, Pass, apply
from fx_onnx.program.export_facts import PassOutcome
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


class _Removes(Pass):
    """Removes the first node."""

    name = "removes"

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        model.graph.remove(model.graph[0])
        return ir.passes.PassResult(model, True)


def test_changes_of_passes_are_a_running_sum() -> None:
    log, nodes = ExportLog(), [ir.Node("", "Neg", [], name=name) for name in "abc"]
    model = ir.Model(ir.Graph([], [], nodes=nodes, name="g", opset_imports={"": 20}), ir_version=10)
    passes = [_Removes(), eliminate_identities, EliminateDeadCode()]
    with log.changes("optimize", ONNXProgram(model), passes) as changes:
        apply(model, passes, changes)
    with log.changes("legalize", ONNXProgram(model), [_Removes()]) as changes:
        changes["removes"] = NodeChange(2, 1)
    assert log.facts().passes == (
        PassOutcome("removes", "optimize", 1, 3, 2, "optimize={'removes'}"),
        PassOutcome("eliminate_dead_code", "optimize", 1, 2, 0, "optimize={'eliminate_dead_code'}"),
        PassOutcome("removes", "legalize", 2, 0, 1),
    )


def test_console_lines_are_ascii(capfd: pytest.CaptureFixture[str]) -> None:
    print_line("größe")
    assert capfd.readouterr().out == "[fx_onnx] gr??e\n"
