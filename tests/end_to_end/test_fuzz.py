"""Random programs export right, or are refused with a clear error: the first seeds of the fuzzer in tests/fuzz."""

from __future__ import annotations

import pytest

from tests.fuzz.generator import SIZES, Program, generate
from tests.fuzz.verdicts import MISTAKES, Outcome, is_unstable, judge, minimized, opsets

PER_TEST = 5


@pytest.mark.parametrize("begin", range(1, 131, PER_TEST))
def test_random_programs(begin: int) -> None:
    for seed in range(begin, begin + PER_TEST):
        program = generate(seed)
        for opset in opsets(seed)[:3]:
            verdict = judge(program, opset)
            assert verdict.outcome not in MISTAKES, f"{verdict}\n{program.source()}"


def test_generation_is_deterministic() -> None:
    assert generate(7) == generate(7)
    assert generate(7).dynamic
    assert not generate(8).dynamic


def test_results_that_cancel_are_unstable() -> None:
    """The difference of nearly equal numbers moves under one rounding error; a plain product does not."""
    cancelling = Program(3, ("v0 = (x * 1000 + 1) - x * 1000", "v1 = v0 * 1000"), ("v1",), dynamic=False)
    stable = Program(3, ("v0 = x * 1000",), ("v0",), dynamic=False)
    assert is_unstable(cancelling, 0)
    assert not is_unstable(stable, 0)


def test_a_minimized_program_still_fails() -> None:
    program = Program(3, ("v0 = x + 1", "v1 = y * 2", "v2 = v0 * 3"), ("v1", "v2"), dynamic=False)
    shortest = minimized(program, lambda each: "v0 = x + 1" in each.statements and "v2" not in each.results)
    assert shortest.statements == ("v0 = x + 1",)
    assert shortest.results == ("v1",)


def test_generated_programs_run_in_eager_mode() -> None:
    """Every statement of a generated program runs at every size."""
    for seed in range(20):
        program = generate(seed)
        for size in range(len(SIZES)):
            results, _ = program.eager(size)
            assert len(results) == len(program.results)


def test_judge_distinguishes_right_from_refused() -> None:
    right = Program(3, ("v0 = x + 1",), ("v0",), dynamic=True)
    assert judge(right, 20).outcome is Outcome.RIGHT
    refused = Program(3, ("v0 = x.expand(2, 5, 4)", "v0[0].add_(1)", "v1 = v0 * 2"), ("v1",), dynamic=False)
    assert judge(refused, 20).outcome in (Outcome.REFUSED, Outcome.CAPTURE)
