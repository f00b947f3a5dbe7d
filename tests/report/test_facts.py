"""The verdict: one sentence for each outcome of an export."""

from dataclasses import replace

from fx_onnx.messages.message_ids import Finding, MessageId
from fx_onnx.program.export_facts import Facts, StageOutcome
from fx_onnx.report.facts import verdict_of
from fx_onnx.verification.verification_result import Cause, SizeResult, Verification
from tests.report.facts_examples import BAD, COMPLETE, FAILED, GOOD

STAGES = (StageOutcome("capture", 1.0, True),)


def test_verdicts() -> None:
    assert verdict_of(FAILED).state == "failed"
    assert verdict_of(FAILED).details == ("No operator `foo`.",)
    assert verdict_of(COMPLETE).details[0] == "z|w: the largest difference is 1"
    assert verdict_of(Facts()).title == "The model was read from a file."
    assert verdict_of(Facts(stages=STAGES)).state == "unverified"


def test_verified_outputs_are_counted() -> None:
    one = Facts(stages=STAGES, verification=Verification((GOOD,)))
    assert verdict_of(one).state == "passed"
    assert verdict_of(one).title == "Exported and verified. The output agrees with the module."
    assert verdict_of(one).details == ("The largest difference is 2.5e-07 of the largest magnitude of its output.",)
    three = replace(one, verification=Verification((GOOD, GOOD, GOOD)))
    assert "All 3 outputs agree" in verdict_of(three).title
    assert verdict_of(replace(one, verification=Verification((GOOD, BAD)))).state == "failed"


def test_findings_are_part_of_the_verdict() -> None:
    findings = (Finding(MessageId.STATIC_DIM, "Axis 1 is static."),)
    facts = Facts(stages=STAGES, verification=Verification((GOOD,)), findings=findings)
    assert verdict_of(facts).details[-1] == "Axis 1 is static. [FX1201]"


def test_the_cause_and_other_sizes_are_part_of_the_verdict() -> None:
    cause = Cause("translation", "first differs at enc.1 (GELU)")
    sizes = SizeResult("batch=3", (BAD,))
    facts = Facts(stages=STAGES, verification=Verification((GOOD,), (sizes,), (), cause))
    assert verdict_of(facts).state == "failed"
    assert verdict_of(facts).details == (
        "first differs at enc.1 (GELU)",
        "z|w at batch=3: the largest difference is 1",
    )
    refused = Verification((GOOD,), (SizeResult("batch=3", problem="it does not run"),))
    assert verdict_of(Facts(stages=STAGES, verification=refused)).details == ("batch=3: it does not run",)
    good = Verification((GOOD,), (SizeResult("batch=3", (GOOD,)),), ("The size 1 was left out.",))
    details = verdict_of(Facts(stages=STAGES, verification=good)).details
    assert details[0].endswith("of its output. It also agrees at batch=3.")
    assert details[1] == "The size 1 was left out."
