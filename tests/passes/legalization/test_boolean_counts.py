"""Cumulative counts of booleans in int32."""

import torch

from fx_onnx.passes.legalization.boolean_counts import LegalizeBooleanCounts
from tests.passes.checking import check, model


def test_counts() -> None:
    text = """g (bool[M,N] b) => (int64[M,N] y) <int64 axis = {1}> {
      c = Cast<to=7>(b)\n y = CumSum<exclusive=1, reverse=1>(c, axis)
    }"""
    booleans = torch.tensor([[True, False, True], [True, True, True]])
    check(model(text), LegalizeBooleanCounts(), [booleans], ["Cast", "CumSum", "Cast"])


def test_sums_of_other_numbers_stay() -> None:
    text = "g (int32[M,N] x) => (int64[M,N] y) <int64 axis = {1}> { c = Cast<to=7>(x)\n y = CumSum(c, axis) }"
    assert not LegalizeBooleanCounts()(model(text)).modified
