"""The record of a condition on sizes, and conditions that are weaker."""

from __future__ import annotations

import pytest
import sympy

from fx_onnx.capture.proof.size_condition import Condition, all_hold, one_is_larger, weaker_conditions

N, M = sympy.symbols("n m", integer=True)


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        (sympy.Ge(N, 3), {(3, 0): True, (2, 9): False}),
        (sympy.Or(sympy.Eq(N, M), sympy.Eq(M, 1)), {(4, 4): True, (4, 1): True, (4, 2): False}),
        (one_is_larger((N, M)).expression, {(1, 1): False, (2, 1): True, (1, 7): True}),
    ],
)
def test_a_condition_holds_for_sizes(expression: sympy.Basic, holds: dict[tuple[int, int], bool]) -> None:
    condition = Condition(expression)
    for (n, m), expected in holds.items():
        assert condition.holds({N: n, M: m}) == expected
        assert all_hold([condition, Condition(sympy.true)], {N: n, M: m}) == expected


def test_its_symbols_are_in_the_order_of_their_names() -> None:
    assert Condition(sympy.Ge(N, M)).symbols == (M, N)


@pytest.mark.parametrize(
    ("condition", "weaker"),
    [
        (Condition(sympy.Eq(N, M)), [sympy.Ge(M, N), sympy.Ge(N, M)]),
        (Condition(sympy.Eq(N, 3), is_count=True), [sympy.Ge(N, 3), sympy.Ge(N, 2)]),
        (Condition(sympy.Eq(N, 3)), []),
    ],
)
def test_weaker_conditions(condition: Condition, weaker: list[sympy.Basic]) -> None:
    found = list(weaker_conditions(condition))
    assert [each.expression for each in found] == weaker
    assert not any(each.converts for each in found)
