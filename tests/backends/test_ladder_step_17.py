"""Opset 18 → 17: each rewrite gives the operators and the numbers that it should."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.messages.errors import OnnxExporterError
from tests.passes.checking import check, model

IMAGE = torch.randn(2, 3, 6, 8)
INTEGERS = torch.tensor([0, 1, -1, 2**62, -(2**63), 2**63 - 1, 12345, -777])


@pytest.mark.parametrize(
    ("text", "inputs", "operators"),
    [
        ("(float[2,3,6,8] x) => (float[A,B] y) <int64[2] a = {1,-1}> { y = ReduceMean<keepdims=0>(x, a) }", [IMAGE],
         ["ReduceMean"]),
        ("(float[2,3,6,8] x) => (float[A,B,C,D] y) { y = ReduceMax(x) }", [IMAGE], ["ReduceMax"]),
        ("(float[2,3,6,8] x) => (float[A,B,C,D] y) { y = ReduceMin<noop_with_empty_axes=1>(x) }", [IMAGE],
         ["Identity"]),
        ("(float[2,3,6,8] x) => (float[A,B,C,D] y, float[E,F,G,H] z) { y, z = Split<axis=3, num_outputs=2>(x) }",
         [IMAGE], ["Split"]),
        ("(float[N,3] x) => (float[A,3] y, float[B,3] z, float[C,3] w) { y, z, w = Split<axis=0, num_outputs=3>(x) }",
         [torch.randn(8, 3)], ["Shape", "Add", "Div", "Mul", "Sub", "Concat", "Split"]),
        ("(float[2,3,6,8] x) => (float[A,B,C,D] y) <int64[4] p = {1,0,0,2}, float v = {3.0}, int64[2] a = {3,-2}>"
         " { y = Pad(x, p, v, a) }", [IMAGE], ["Pad"]),
        ("(float[2,3,6,8] x) => (float[A,B,C,D] y) <float[2] s = {2.0,1.5}, int64[1] e = {0}>"
         ' { y = Resize<axes=[2,3], mode="linear">(x, , s) }', [IMAGE], ["Resize"]),
        ("(float[2,3,6,8] x) => (float[A,B,C,D] y) <int64[2] s = {9,5}>"
         ' { y = Resize<axes=[3,2], mode="cubic">(x, , , s) }', [IMAGE], ["Resize"]),
        ("(float[N,3,6,8] x, int64[2] s) => (float[A,B,C,D] y)"
         ' { y = Resize<axes=[2,3], mode="linear">(x, , , s) }', [IMAGE, torch.tensor([9, 5])],
         ["Shape", "Slice", "Slice", "Concat", "Resize"]),
        ("(float[2,3,6,8] x) => (float[2,3,3,4] y) <int64[2] s = {3,4}>"
         ' { y = Resize<axes=[2,3], mode="linear", antialias=1, exclude_outside=1>(x, , , s) }', [IMAGE],
         ["Transpose", "MatMul", "Transpose", "MatMul"]),
        ("(float[2,3,6,8] x) => (float[2,3,4,3] y) <int64[2] s = {4,3}>"
         ' { y = Resize<axes=[2,3], mode="cubic", antialias=1>(x, , , s) }', [IMAGE],
         ["Transpose", "MatMul", "Transpose", "MatMul"]),
        ("(float[2,3,6,8] x) => (float[2,3,4,3] y) <int64[2] s = {4,3}>"
         ' { y = Resize<axes=[2,3], mode="linear", antialias=1>(x, , , s) }', [IMAGE],
         ["Transpose", "MatMul", "Transpose", "MatMul"]),
        ("(float[N] x) => (float[N] y) { y = Mish(x) }", [torch.randn(9)], ["Softplus", "Tanh", "Mul"]),
        ("(int64[N] x) => (int64[N] y) { y = BitwiseNot(x) }", [INTEGERS], ["Sub"]),
        ("(int32[N] x) => (int32[N] y) { y = BitwiseNot(x) }", [INTEGERS.int()], ["Sub"]),
        ("(uint8[N] x) => (uint8[N] y) { y = BitwiseNot(x) }", [INTEGERS.byte()], ["Cast", "Sub", "Cast"]),
        ("(int16[N] x) => (int16[N] y) { y = BitwiseNot(x) }", [INTEGERS.short()], ["Cast", "Sub", "Cast"]),
        ("(float[2,12,20] x) => (float[2,3,5,6] y) <int64[2] i = {5,6}, int64[2] b = {2,2}> { y = Col2Im(x, i, b) }",
         [torch.randn(2, 12, 20)], ["Reshape", "ConvTranspose", "Pad"]),
        ("(float[2,8,8] x) => (float[2,2,6,7] y) <int64[2] i = {6,7}, int64[2] b = {2,2}>"
         " { y = Col2Im<strides=[2,2], pads=[0,1,0,0], dilations=[2,1]>(x, i, b) }",
         [torch.randn(2, 8, 8)], ["Reshape", "ConvTranspose", "Pad"]),
        ("(float[3] x, int64[2] i, float[2] u) => (float[3] y) { y = ScatterElements<reduction=\"add\">(x, i, u) }",
         [torch.randn(3), torch.tensor([2, 2]), torch.randn(2)], ["ScatterElements"]),
    ],
)  # fmt: skip
def test_rewritten(text: str, inputs: Sequence[Tensor], operators: Sequence[str]) -> None:
    check(model(f"g {text}", opset=18), OpsetStep(17), inputs, operators)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(float[3] x, int64[K] a) => (float[N] y) { y = ReduceMean(x, a) }", "its axes are computed at run time"),
        ("(float[3,4] x, int64[2] s) => (float[A,B] y) { y = CenterCropPad(x, s) }", "has no such operator"),
        ('(float[1,1,A,A] x, int64[2] s) => (float[A,B,C,D] y)'
         ' { y = Resize<axes=[2,3], mode="linear", antialias=1>(x, , , s) }', "antialiasing"),
    ],
)  # fmt: skip
def test_refused(text: str, message: str) -> None:
    with pytest.raises(OnnxExporterError, match=message):
        OpsetStep(17)(model(f"g {text}", opset=18))
