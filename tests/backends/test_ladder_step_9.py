"""Opset 10 → 9: each rewrite computes the same numbers."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.messages.errors import OnnxExporterError
from tests.passes.checking import check, model

X = torch.randn(2, 5, 7)
IMAGE = torch.randn(1, 2, 7, 8)
FLOATS = torch.tensor([-2.5, 0.5, 1.5, 3.4e38, float("nan"), float("inf"), -float("inf")])


@pytest.mark.parametrize(
    ("text", "inputs", "operators"),
    [
        ("(float[A,B,C] x) => (float[A,D,E] y) <int64[2] s = {1,-3}, int64[2] e = {9,-1}, int64[2] a = {1,2}>"
         " { y = Slice(x, s, e, a) }", [X], ["Slice"]),
        ("(float[A,B,C] x) => (float[D,B,C] y, int64[D,B,C] i) <int64[1] k = {2}> { y, i = TopK<axis=0>(x, k) }", [X],
         ["TopK"]),
        ("(float[1,2,7,8] x) => (float[1,2,4,4] y)"
         " { y = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(x) }", [IMAGE], ["MaxPool"]),
        ("(float[1,2,7,8] x) => (float[A,B,C,D] y) { y = MaxPool<kernel_shape=[2,3], strides=[2,2], ceil_mode=1>(x) }",
         [IMAGE], ["MaxPool"]),
        ("(float[1,2,7,8] x) => (float[A,B,C,D] y)"
         " { y = AveragePool<kernel_shape=[2,3], strides=[2,2], ceil_mode=1>(x) }", [IMAGE], ["AveragePool"]),
        ("(float[A,B,C,D] x) => (float[A,B,E,F] y) <float[4] s = {1.0,1.0,2.0,3.0}> { y = Resize(x, s) }", [IMAGE],
         ["Upsample"]),
        ("(float[N] x) => (bool[N] y) { y = IsInf(x) }", [FLOATS], ["Abs", "Greater"]),
        ("(float[N] x) => (bool[N] y) { y = IsInf<detect_negative=0>(x) }", [FLOATS], ["Greater"]),
        ("(double[N] x) => (bool[N] y) { y = IsInf<detect_positive=0>(x) }", [FLOATS.double()], ["Greater"]),
        ("(float[N] x) => (float[N] y) { y = ThresholdedRelu<alpha=1.0>(x) }", [FLOATS], ["Greater", "Where"]),
    ],
)  # fmt: skip
def test_rewritten(text: str, inputs: Sequence[Tensor], operators: Sequence[str]) -> None:
    check(model(f"g {text}", opset=10), OpsetStep(9), inputs, operators)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(float[N] x, int64[1] k) => (float[M] y, int64[M] i) { y, i = TopK(x, k) }", "its k is computed"),
        ("(float[1,2,H,W] x) => (float[A,B,C,D] y) { y = MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(x) }",
         "it has ceil_mode, and its sizes are not static"),
        ("(float[1,2,7,8] x) => (float[A,B,C,D] y) { y = MaxPool<kernel_shape=[2,2], dilations=[2,2]>(x) }",
         "it has dilations"),
        ("(float[N] x) => (float[N] y) { y = Mod<fmod=1>(x, x) }", "no remainder of floats"),
        ("(float[A,B,C] x, int64[A] n) => (float[A,B,C] y) { y = ReverseSequence(x, n) }", "no such operator"),
    ],
)  # fmt: skip
def test_refused(text: str, message: str) -> None:
    with pytest.raises(OnnxExporterError, match=f"{message}.*opset_version=10 or above"):
        OpsetStep(9)(model(f"g {text}", opset=10))
