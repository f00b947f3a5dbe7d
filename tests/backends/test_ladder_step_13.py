"""Opset 14 → 13: each rewrite gives the operators and the numbers that it should."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.messages.errors import OnnxExporterError
from tests.passes.checking import check, model


@pytest.mark.parametrize(
    ("text", "inputs", "operators"),
    [
        ("(float[N] x) => (float[N] y) { y = HardSwish(x) }", [torch.linspace(-5, 5, 9)], ["HardSigmoid", "Mul"]),
        ("(int32[N] x) => (int32[N] y) { y = Relu(x) }", [torch.arange(-3, 3, dtype=torch.int32)], ["Max"]),
        ("(float[N] x) => (float[N] y) { y = Relu(x) }", [torch.randn(4)], ["Relu"]),
        ("(float[N,4,4] x) => (float[N,4,4] y) { y = Trilu(x) }", [torch.randn(2, 4, 4)],
         ["Unsqueeze", "Sub", "GreaterOrEqual", "Where"]),
        ("(int64[A,B] x, int64 k) => (int64[A,B] y) { y = Trilu<upper=0>(x, k) }",
         [torch.arange(1, 16).reshape(3, 5), torch.tensor(-1)],
         [*["Shape", "Gather", "Range"] * 2, "Unsqueeze", "Sub", "LessOrEqual", "Where"]),
        ("(float[A,B] x) => (float[2,6] y) <int64[2] s = {2,6}> { y = Reshape<allowzero=1>(x, s) }",
         [torch.randn(3, 4)], ["Reshape"]),
        ("(float[A,0] x) => (float[0,6] y) <int64[2] s = {0,6}> { y = Reshape<allowzero=1>(x, s) }",
         [torch.randn(3, 0)], ["Expand"]),
        ("(float[A,6] x, int64[3] s) => (float[A,2,3] y) { y = Reshape<allowzero=1>(x, s) }",
         [torch.randn(0, 6), torch.tensor([0, 2, 3])], ["Reshape"]),
        ("(int8[N] x) => (int8[N] y) { y = Add(x, x) }", [torch.tensor([-128, 127, 1], dtype=torch.int8)],
         ["Cast", "Add", "Cast"]),
        ("(float16[N] x) => (float16[N] y) <int64 a = {0}> { y = CumSum(x, a) }", [torch.ones(5).half()],
         ["Cast", "CumSum", "Cast"]),
        ("(float[N,3] x, float[3] w) => (float[N,3] y) { y = BatchNormalization(x, w, w, w, w) }",
         [torch.randn(2, 3), torch.rand(3) + 0.5], ["BatchNormalization"]),
    ],
)  # fmt: skip
def test_rewritten(text: str, inputs: Sequence[Tensor], operators: Sequence[str]) -> None:
    check(model(f"g {text}", opset=14), OpsetStep(13), inputs, operators)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(seq(float[N]) x) => (seq(float[N]) y) { y = Identity(x) }", "it admits tensors only"),
    ],
)  # fmt: skip
def test_refused(text: str, message: str) -> None:
    with pytest.raises(OnnxExporterError, match=f"{message}.*opset_version=14 or above"):
        OpsetStep(13)(model(f"g {text}", opset=14))
