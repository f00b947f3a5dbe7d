"""Opset 8 → 7: each rewrite computes the same numbers."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.messages.errors import OnnxExporterError
from tests.passes.checking import check, model

X = torch.tensor([[1.0, float("nan"), -float("inf")], [-4.0, 0.0, 2.0]])


@pytest.mark.parametrize(
    ("text", "inputs", "operators"),
    [
        ("(float[1,3] x) => (float[2,2,3] y) <int64[3] s = {2,2,1}> { y = Expand(x, s) }", [X[:1]],
         ["Unsqueeze", "Tile"]),
        ("(float x) => (float[2,3] y) <int64[2] s = {2,3}> { y = Expand(x, s) }", [X[0, 0]],
         ["Reshape", "Tile"]),
        ("(int64[1,C] x, int64[2] s) => (int64[R,C] y) { y = Expand(x, s) }",
         [X[:1].nan_to_num().long(), torch.tensor([4, 1])], ["Slice", "Concat", "Tile"]),
        ("(float[A,B] x, float[A,B] z) => (float[A,B] y) { y = Max(x, z) }", [X, X.flip(0)], ["Max"]),
        ("(float[2,3] x) => (float[2,3] y) <float z = {0.5}> { y = Max(x, z) }", [X], ["Max"]),
        ("(float[A,B] x) => (float[A,B] y) <float z = {0.5}> { y = Min(x, z) }", [X],
         ["Shape", "Slice", "Shape", "Slice", "Reshape", "Concat", "Tile", "Min"]),
        ("(float[A,1] x, float[B] z) => (float[A,B] y) { y = Max(x, z) }", [X[:, :1], X[0, :2]],
         ["Shape", "Slice", "Shape", "Slice", "Concat", "Tile", "Unsqueeze", "Concat", "Tile", "Max"]),
        ("(float[2,3] x, float[3] z) => (float[2,3] y) { y = Sum(x, z, x) }", [X, X[1]], ["Unsqueeze", "Tile", "Sum"]),
        ("(float[1,1,4,4] x) => (float[1,1,2,2] y) { y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) }",
         [torch.randn(1, 1, 4, 4)], ["MaxPool"]),
    ],
)  # fmt: skip
def test_rewritten(text: str, inputs: Sequence[Tensor], operators: Sequence[str]) -> None:
    check(model(f"g {text}", opset=8), OpsetStep(7), inputs, operators)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(float[A] x, int64[1] s) => (float[B] y) { y = Expand(x, s) }", "not known which axes it expands"),
        ("(float[A] x, float[B] z) => (float[C] y) { y = Max(x, z) }", "not known which axes it expands"),
        ("(float[1,1,4,4] x) => (float[1,1,2,2] y, int64[1,1,2,2] i)"
         " { y, i = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) }", "its indices are read"),
    ],
)  # fmt: skip
def test_refused(text: str, message: str) -> None:
    with pytest.raises(OnnxExporterError, match=f"{message}.*opset_version=8 or above"):
        OpsetStep(7)(model(f"g {text}", opset=8))
