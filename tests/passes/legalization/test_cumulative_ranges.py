"""Ranges as cumulative sums."""

import pytest
import torch

from fx_onnx.passes.legalization.cumulative_ranges import LegalizeRanges
from tests.passes.checking import check, check_equal, model


def test_the_positions_of_a_sequence() -> None:
    """A size is not negative."""
    text = """g (float[N,M] x) => (int64[N] y) <int64[1] axis = {0}, int64 zero = {0}, int64 one = {1}> {
      shape = Shape<start=0, end=1>(x)\n n = Squeeze(shape, axis)\n y = Range(zero, n, one)
    }"""
    expected = ["Shape", "Squeeze", "Unsqueeze", "Expand", "CumSum"]
    check(model(text), LegalizeRanges(), [torch.ones(5, 2)], expected)


def test_a_limit_that_is_the_size_of_the_result() -> None:
    """There is no Max, which would hide the size: a size is not negative, however it is computed."""
    text = """g (float[N,M] x) => (int64[K] y) <int64[1] axis = {0}, int64 zero = {0}, int64 one = {1}> {
      shape = Shape<start=0, end=1>(x)\n n = Squeeze(shape, axis)\n k = Sub(n, one)\n y = Range(zero, k, one)
    }"""
    expected = ["Shape", "Squeeze", "Sub", "Unsqueeze", "Expand", "CumSum"]
    check(model(text), LegalizeRanges(), [torch.ones(5, 2)], expected)


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize(("start", "limit"), [(0, 7), (3, 7), (7, 3), (-2, 4), (4, 4), (6, -3)])
@pytest.mark.parametrize("step", [1, 2, 3, -1, -4])
def test_any_bounds(start: int, limit: int, step: int, dtype: str) -> None:
    text = f"g ({dtype} a, {dtype} b) => ({dtype}[N] y) <{dtype} step = {{{step}}}> {{ y = Range(a, b, step) }}"
    bounds = [torch.tensor(each, dtype=getattr(torch, dtype)) for each in (start, limit)]
    program = check_equal(model(text), LegalizeRanges(), bounds)
    assert "Range" not in [node.op_type for node in program.graph]


def test_declined() -> None:
    """A step that is not known, and floats."""
    integers = "g (int64 a, int64 b, int64 c) => (int64[N] y) { y = Range(a, b, c) }"
    check(model(integers), LegalizeRanges(), [torch.tensor(1), torch.tensor(7), torch.tensor(2)], ["Range"])
    floats = "g (float a, float b) => (float[N] y) <float step = {0.5}> { y = Range(a, b, step) }"
    check(model(floats), LegalizeRanges(), [torch.tensor(1.0), torch.tensor(3.0)], ["Range"])
