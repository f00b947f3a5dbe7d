"""Norms and logarithms of sums as ReduceSum."""

import pytest
import torch

from fx_onnx.passes.legalization.reductions_as_sums import LegalizeReductions
from tests.passes.checking import check, model

X = torch.tensor([[1.5, -2.0, 0.25], [100.0, 99.0, 0.5]])


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("ReduceL1", ["Abs", "ReduceSum"]),
        ("ReduceL2", ["Mul", "ReduceSum", "Sqrt"]),
        ("ReduceSumSquare", ["Mul", "ReduceSum"]),
    ],
)
def test_definitions(operator: str, expected: list[str], keepdims: int) -> None:
    text = f"g (float[M,N] x) => (float[] y) <int64[1] a = {{1}}> {{ y = {operator}<keepdims={keepdims}>(x, a) }}"
    check(model(text, opset=18), LegalizeReductions(), [X], expected)


def test_a_logarithm_of_a_sum() -> None:
    text = "g (float[M,N] x) => (float[] y) <int64[1] a = {1}> { y = ReduceLogSum(x, a) }"
    check(model(text, opset=18), LegalizeReductions(), [X.abs()], ["ReduceSum", "Log"])


@pytest.mark.parametrize("keepdims", [0, 1])
def test_exponentials_do_not_overflow(keepdims: int) -> None:
    text = f"g (float[M,N] x) => (float[] y) <int64[1] a = {{1}}> {{ y = ReduceLogSumExp<keepdims={keepdims}>(x, a) }}"
    expected = ["ReduceMax", "Clip", "Sub", "Exp", "ReduceSum", "Log", "Add"] + ["ReduceMax"] * (not keepdims)
    check(model(text, opset=18), LegalizeReductions(), [X], expected)


def test_infinity() -> None:
    text = "g (float[M,N] x) => (float[] y) <int64[1] a = {1}> { y = ReduceLogSumExp(x, a) }"
    changed = model(text, opset=18)
    infinity = float("inf")
    x = torch.tensor([[-infinity, -infinity], [infinity, 0.0], [-infinity, 1.0]])
    expected = ["ReduceMax", "Clip", "Sub", "Exp", "ReduceSum", "Log", "Add"]
    check(changed, LegalizeReductions(), [x], expected)


def test_all_axes_and_integers_stay() -> None:
    check(model("g (float[M,N] x) => (float[] y) { y = ReduceL2(x) }"), LegalizeReductions(), [X], ["ReduceL2"])
    text = "g (int32[M,N] x) => (int32[] y) <int64[1] a = {1}> { y = ReduceL1(x, a) }"
    check(model(text), LegalizeReductions(), [torch.tensor([[1, -2]], dtype=torch.int32)], ["ReduceL1"])
