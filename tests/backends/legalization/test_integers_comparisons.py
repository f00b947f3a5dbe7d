"""Comparisons, predicates and choices."""

import math

import pytest
import torch

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.backends.legalization.integers import (
    legalize_boolean_casts,
    legalize_is_inf,
    legalize_is_nan,
    legalize_less,
    legalize_where,
)
from fx_onnx.passes.rewriter import Pass
from tests.passes.checking import check, model, run

NEGATIVE = torch.tensor([[-3.0, -1.0, float("nan")], [0.0, 2.0, float("-inf")]])


def test_less_of_floats() -> None:
    text = "g (float[M,N] x) => (bool[M,N] y) <float c = {-1.0}> { y = Less(x, c) }"
    check(model(text), legalize_less, [NEGATIVE], ["Greater"])


def test_less_of_integers_stays() -> None:
    text = "g (int64[M,N] x) => (bool[M,N] y) <int64 c = {-1}> { y = Less(x, c) }"
    check(model(text), legalize_less, [torch.tensor([[-3, -1, 0]])], ["Less"])


SPECIAL = torch.tensor([0.0, -0.0, -2.5, 0.25, math.nan, math.inf, -math.inf])


@pytest.mark.parametrize(
    ("row", "predicate", "expected"),
    [
        (legalize_is_nan, "IsNaN(x)", ["Greater", "Greater", "Or", "Not"]),
        (legalize_is_inf, "IsInf(x)", ["Abs", "Greater"]),
        (legalize_is_inf, "IsInf<detect_negative=0>(x)", ["Greater"]),
        (legalize_is_inf, "IsInf<detect_positive=0>(x)", ["Greater"]),
        (legalize_is_inf, "IsInf<detect_positive=0, detect_negative=0>(x)", ["IsInf"]),
        (legalize_boolean_casts, "Cast<to=9>(x)", ["Equal", "Not"]),
    ],
)
def test_a_predicate_of_floats(row: Pass, predicate: str, expected: list[str]) -> None:
    check(model(f"g (float[N] x) => (bool[N] y) {{ y = {predicate} }}"), row, [SPECIAL], expected)


def test_integers_and_booleans() -> None:
    """A Cast of integers to bool is replaced; a Cast of booleans, and one to numbers, stay."""
    text = "g (int64[N] x) => (int64[N] y) { a = Cast<to=9>(x)\n b = Cast<to=9>(a)\n y = Cast<to=7>(b) }"
    check(model(text), legalize_boolean_casts, [torch.tensor([-3, 0, 2])], ["Equal", "Not", "Cast", "Cast"])


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ("x", "row", ["Not", "Where"]),
        ("x", "column", ["Not", "Where"]),
        ("row", "column", ["Shape", "Expand", "Where"]),
        ("column", "row", ["Shape", "Expand", "Where"]),
        ("x", "one", ["Where"]),
        ("one", "row", ["Where"]),
        ("row", "x", ["Where"]),
    ],
)
def test_where(x: str, y: str, expected: list[str]) -> None:
    constants = "float[4] row = {1.0, 2.0, 3.0, 4.0}, float[3,1] column = {5.0, 6.0, 7.0}, float one = {9.0}"
    text = f"g (float[3,4] x, bool[3,4] c) => (float[3,4] y) <{constants}> {{ y = Where(c, {x}, {y}) }}"
    check(model(text), legalize_where, [torch.randn(3, 4), torch.rand(3, 4) > 0.5], expected)


FLOATS = torch.tensor([-2.0, -0.5, 0.0, 0.5, 3.0, float("nan"), float("inf")])


def test_a_comparison_of_nan_is_false() -> None:
    program = model("g (float[N] x) => (bool[N] y) { y = GreaterOrEqual(x, x) }", opset=12)
    OpsetStep(11)(program)
    assert run(program, [FLOATS])[0].equal(FLOATS >= FLOATS)


C = torch.tensor([True, False, True])


def test_a_choice_between_booleans() -> None:
    """ONNX Runtime has no kernel for the original."""
    program = model("g (bool[N] c, bool[N] a, bool[N] b) => (bool[N] y) { y = Where(c, a, b) }", opset=9)
    OpsetStep(8)(program)
    a, b = torch.tensor([True, True, False]), torch.tensor([False, True, False])
    assert run(program, [C, a, b])[0].equal(torch.where(C, a, b))
