"""What an export decided, as data."""

from __future__ import annotations

from fx_onnx.program.export_facts import Facts, StageOutcome


def test_the_time_and_the_failure_of_the_stages() -> None:
    done, failed = StageOutcome("capture", 1.5, True), StageOutcome("translate", 0.5, False)
    assert Facts(stages=[done, failed, StageOutcome("save")]).seconds == 2.0
    assert Facts(stages=[done, failed]).failed_stage == "translate"
    assert Facts(stages=[done]).failed_stage == ""
