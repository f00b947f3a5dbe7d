"""The pipeline runs its stages in order, skips those that do not apply, and fills the log."""

from __future__ import annotations

import gc
import re
import typing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import fx_onnx
from fx_onnx import ONNXProgram, TranslationError, pipeline
from fx_onnx.passes.fusion.norms_and_activations import fuse_gelu
from fx_onnx.pipeline import STAGES
from fx_onnx.program.export_log import ExportLog
from fx_onnx.program.export_options import ExportOptions
from fx_onnx.requests.request import Request, parse_request
from fx_onnx.targets.known_targets import find_target
from tests.compare import assert_close

X = torch.randn(2, 3)
NAMES = [stage.name for stage in STAGES]
ARCHITECTURE = Path(__file__).parents[1] / "docs" / "architecture.md"


def linear() -> Request:
    return parse_request(nn.Linear(3, 2).eval(), (X,))


def run(request: Request, options: ExportOptions | None = None) -> tuple[ONNXProgram, ExportLog]:
    log = ExportLog()
    return pipeline.run(request, options or ExportOptions(), log), log


# ---------------------------------------------------------------- the stages are data


def test_each_stage_takes_what_the_stage_before_returns() -> None:
    previous: type = pipeline.Job
    for stage in STAGES:
        hints = typing.get_type_hints(stage.run)
        result = hints.pop("return")
        (taken,) = hints.values()
        assert issubclass(previous, taken), f"{stage.name} takes {taken.__name__}, but gets {previous.__name__}"
        previous = result
    assert previous is pipeline.OnnxJob


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage.skip_reason], ids=lambda stage: stage.name)
def test_a_stage_that_can_be_skipped_keeps_the_type_of_the_job(stage: pipeline.Stage) -> None:
    hints = typing.get_type_hints(stage.run)
    assert hints.pop("return") in hints.values()


def test_the_architecture_page_lists_the_stages_in_order() -> None:
    text = ARCHITECTURE.read_text("utf-8")
    (block,) = re.findall(r"^```stages\n(.*?)^```", text, re.M | re.S)
    assert [line.split()[0] for line in block.splitlines()] == NAMES


def test_the_report_and_the_timings_name_the_stages() -> None:
    program, log = run(linear(), ExportOptions(verify=True))
    assert [stage.name for stage in log.facts().stages] == NAMES
    skipped = {"rewrite", "modules_to_functions", "check_target", "convert_opset", "add_doc_strings", "save"}
    assert list(program.timings) == [name for name in NAMES if name not in skipped]
    assert {name: log.notes[name] for name in skipped} == {
        "rewrite": ["skipped: no rules were given"],
        "modules_to_functions": ["skipped: export_modules_as_functions=False"],
        "convert_opset": ["skipped: the opset is native"],
        "add_doc_strings": ["skipped: verbose=False"],
        "check_target": ["skipped: no target was given"],
        "save": ["skipped: f=None"],
    }


def test_every_stage_runs_where_it_applies(tmp_path: Path) -> None:
    path = tmp_path / "linear.onnx"
    functions = ExportOptions(modules_as_functions=True, verify=True, doc_strings=True, destination=path)
    ran = set(run(linear(), replace(functions, rules=[fuse_gelu]))[0].timings)
    ran |= set(run(linear(), ExportOptions(opset=17, target=find_target("openvino")))[0].timings)
    assert ran == set(NAMES)
    assert path.exists()


# ---------------------------------------------------------------- what one run records


def test_the_facts_of_a_run() -> None:
    program, log = run(linear(), ExportOptions(verify=True))
    facts = log.facts()
    assert log.program is program
    assert facts.operators_before == {"aten.linear.default": 1}
    assert facts.verification is not None
    assert facts.verification.ok


def test_without_the_optimizer() -> None:
    program, log = run(linear(), ExportOptions(optimize=False))
    assert log.notes["optimize"] == ["skipped: optimize=False"]
    assert "optimize" not in program.timings


def test_a_failing_stage_is_recorded() -> None:
    def broken(op: object, input: object, weight: object, bias: object = None) -> object:
        raise KeyError("inside")

    log = ExportLog()
    options = ExportOptions(custom_translation_table={torch.ops.aten.linear.default: broken})
    with pytest.raises(TranslationError, match="KeyError: 'inside'"):
        pipeline.run(linear(), options, log)
    assert log.failed == "translate"


def test_an_unused_custom_translation_is_recorded() -> None:
    options = ExportOptions(custom_translation_table={torch.ops.aten.relu.default: lambda op, self: op.Relu(self)})
    _, log = run(linear(), options)
    assert log.notes["decompose"] == ["custom_translation_table has unused entries: aten.relu.default"]


def test_an_open_fake_mode_of_the_caller_does_not_matter() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    module = nn.Sequential(nn.Linear(3, 2), nn.GELU()).eval()
    request = parse_request(torch.export.export(module, (X,)))
    with FakeTensorMode():
        program, log = run(request)
    assert_close(program(X)[0], module(X))
    assert log.notes["capture"] == ["skipped: the model is an ExportedProgram"]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_keeps_its_state(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        fx_onnx.export(torch.nn.ReLU(), (torch.ones(2),))
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_a_failing_comparison_says_first_that_the_module_is_in_training_mode() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout())
    with pytest.raises(
        fx_onnx.VerificationError, match=r"^Sequential is in training mode; call .* The ONNX program diff"
    ):
        fx_onnx.export(module, (torch.ones(4, 8),), verify=True)
