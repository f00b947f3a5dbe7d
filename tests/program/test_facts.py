"""The verdict: one sentence for each outcome of an export."""

from dataclasses import replace

from fx_onnx.core.findings import Finding
from fx_onnx.core.messages import MessageId
from fx_onnx.program.facts import Facts, StageOutcome
from fx_onnx.program.verify import Verification
from tests.program.facts_examples import BAD, COMPLETE, FAILED, GOOD

STAGES = (StageOutcome("capture", 1.0, True),)


def test_verdicts() -> None:
    assert FAILED.verdict().state == "failed"
    assert FAILED.verdict().details == ("No operator `foo`.",)
    assert COMPLETE.verdict().details[0] == "z|w: the largest difference is 1"
    assert Facts().verdict().title == "The model was read from a file."
    assert Facts(stages=STAGES).verdict().state == "unverified"


def test_verified_outputs_are_counted() -> None:
    one = Facts(stages=STAGES, verification=Verification((GOOD,)))
    assert one.verdict().state == "passed"
    assert one.verdict().title == "Exported and verified. The output agrees with the module."
    assert one.verdict().details == ("The largest difference is 2.5e-07 of the largest magnitude of its output.",)
    three = replace(one, verification=Verification((GOOD, GOOD, GOOD)))
    assert "All 3 outputs agree" in three.verdict().title
    assert replace(one, verification=Verification((GOOD, BAD))).verdict().state == "failed"


def test_findings_are_part_of_the_verdict() -> None:
    findings = (Finding(MessageId.STATIC_DIM, "Axis 1 is static."),)
    facts = Facts(stages=STAGES, verification=Verification((GOOD,)), findings=findings)
    assert facts.verdict().details[-1] == "Axis 1 is static. [FX1201]"
