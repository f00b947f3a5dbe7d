"""IsNaN, IsInf and Casts to bool as comparisons."""

import math

import pytest
import torch

from fx_onnx.passes.legalization.predicates import LegalizePredicates
from tests.passes.checking import check, model

X = torch.tensor([0.0, -0.0, -2.5, 0.25, math.nan, math.inf, -math.inf])


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("IsNaN(x)", ["GreaterOrEqual", "GreaterOrEqual", "Or", "Not"]),
        ("IsInf(x)", ["Abs", "Equal"]),
        ("IsInf<detect_negative=0>(x)", ["Equal"]),
        ("IsInf<detect_positive=0>(x)", ["Equal"]),
        ("IsInf<detect_positive=0, detect_negative=0>(x)", ["IsInf"]),
        ("Cast<to=9>(x)", ["Equal", "Not"]),
    ],
)
def test_a_predicate_of_floats(predicate: str, expected: list[str]) -> None:
    check(model(f"g (float[N] x) => (bool[N] y) {{ y = {predicate} }}"), LegalizePredicates(), [X], expected)


def test_integers_and_booleans() -> None:
    """A Cast of integers to bool is replaced; a Cast of booleans, and one to numbers, stay."""
    text = "g (int64[N] x) => (int64[N] y) { a = Cast<to=9>(x)\n b = Cast<to=9>(a)\n y = Cast<to=7>(b) }"
    check(model(text), LegalizePredicates(), [torch.tensor([-3, 0, 2])], ["Equal", "Not", "Cast", "Cast"])
