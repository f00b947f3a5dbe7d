"""Round as an addition."""

import math

import torch

from fx_onnx.passes.legalization.half_to_even import LegalizeRound
from tests.passes.checking import check, model


def test_halves_and_large_numbers() -> None:
    x = torch.tensor(
        [0.5, 1.5, 2.5, -0.5, -1.5, 3.4, -3.6, 2.0**22 + 0.5, 2.0**23 + 1, 3e38, math.inf, -math.inf, math.nan]
    )
    expected = ["Abs", "Add", "Sub", "Sign", "Mul", "Greater", "Where"]
    check(model("g (float[N] x) => (float[N] y) { y = Round(x) }"), LegalizeRound(), [x], expected, tolerance=0)


def test_float16_stays() -> None:
    assert not LegalizeRound()(model("g (float16[N] x) => (float16[N] y) { y = Round(x) }")).modified
