"""Opset 9 → 8: each rewrite computes the same numbers."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.messages.errors import OnnxExporterError
from tests.passes.checking import check_equal, model

FLOATS = torch.tensor([-2.5, -0.0, 0.5, 3.4e38, float("nan"), float("inf"), -float("inf")])
INTEGERS = torch.tensor([5, -(2**62), -5, 2**40 + 1, 2**40, -1, 2**62 + 1, 2**62, -(2**62) - 1, 0, 2**63 - 1])
C = torch.tensor([True, False, True])


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("(int64[N,1] x, int64[N] z) => (bool[N,N] y) { y = Less(x, z) }", [INTEGERS[:, None], INTEGERS]),
        ("(int64[N,1] x, int64[N] z) => (bool[N,N] y) { y = Greater(x, z) }", [INTEGERS[:, None], INTEGERS]),
        ("(int32[N] x, int32[N] z) => (bool[N] y) { y = Less(x, z) }", [C.int(), torch.tensor([2, -1, 1]).int()]),
        ("(float[N] x) => (bool[N] y) { y = IsNaN(x) }", [FLOATS]),
        ("(bool[N] c, int64[N] a, int64[1] b) => (int64[N] y) { y = Where(c, a, b) }",
         [C, INTEGERS[:3], INTEGERS[3:4]]),
        ("(bool[N] c) => (float[N] y) <float a = {0.0}, float b = {-3.4e38}> { y = Where(c, a, b) }", [C]),
        ("(float[N] x) => (float[N] y) { y = Sign(x) }", [FLOATS[[0, 1, 2, 3, 5, 6]]]),
        ("(int64[N] x) => (int64[N] y) { y = Sign(x) }", [INTEGERS]),
        ("(int64[2] s) => (int64[A,B] y) { y = ConstantOfShape<value = int64[1] {7}>(s) }", [torch.tensor([2, 3])]),
        ("(int64[1] n) => (int64[1,N] y) { o = ConstantOfShape<value = int64[1] {1}>(n)\n y = NonZero(o) }",
         [torch.tensor([4])]),
        ("(int64[N] i) => (float[N,4] y) <int64 d = {4}, float[2] v = {0.0,1.0}> { y = OneHot(i, d, v) }",
         [torch.tensor([0, 5, 3])]),
        ("(int64[N] i) => (int64[4,N] y) <int64 d = {4}, int64[2] v = {0,1}> { y = OneHot<axis=0>(i, d, v) }",
         [torch.tensor([0, 2, 3])]),
        ("(float[2,3] x) => (float[2,3] y) { y = EyeLike<k=1>(x) }", [torch.zeros(2, 3)]),
        ("(int64[A,B,C] x) => (int64[D,E] y) { y = Flatten(x) }", [torch.arange(24).reshape(2, 3, 4)]),
        ("(int64[2,3,C] x) => (int64[D,E] y) { y = Flatten<axis=2>(x) }", [torch.arange(24).reshape(2, 3, 4)]),
        ("(float[A,B,C,D] x) => (float[A,B,E,F] y) <float[4] s = {1.0,1.0,2.0,3.0}> { y = Upsample(x, s) }",
         [torch.randn(1, 2, 3, 4)]),
        ("(float[N] x) => (float[N] y) { y = Sinh(x) }", [torch.tensor([-3.0, 1e-6, 0.0, 2.0])]),
        ("(float[N] x) => (float[N] y) { y = Cosh(x) }", [torch.tensor([-3.0, 1e-6, 0.0, 2.0])]),
        ("(float[B] s, float[T,B] x) => (float[B] t, float[T,B] y)"
         " { t, y = Scan<num_scan_inputs=1, body = b (float[B] a, float[B] c) => (float[B] d, float[B] e)"
         " { d = Add(a, c)\n e = Mul(d, d) }>(s, x) }", [torch.randn(3), torch.randn(5, 3)]),
        ("(float[1,2,3] x, float[2] s, float[2] b, float[2] m, float[2] v) => (float[1,2,3] y)"
         " { y = BatchNormalization(x, s, b, m, v) }", [torch.randn(1, 2, 3), *torch.rand(4, 2)]),
    ],
)  # fmt: skip
def test_rewritten(text: str, inputs: Sequence[Tensor]) -> None:
    check_equal(model(f"g {text}", opset=9), OpsetStep(8), inputs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(bool[N] c, float[N] a, float[N] b) => (float[N] y) { y = Where(c, a, b) }", "chooses between floats"),
        ("(float[N] x) => (float[N] y) { y = Erf(x) }", "that opset has no such operator"),
        ("(float[N] x) => (int64[1,M] y) { y = NonZero(x) }", "no operator that finds elements"),
        ("(int64[N] i, float[2] v) => (float[N,4] y) <int64 d = {4}> { y = OneHot(i, d, v) }", "are not 0 and 1"),
        ("(float[A,B] x) => (float[A,B] y) { y = EyeLike(x) }", "its sizes are not static"),
        ("(float[N] x, int64[N] i) => (float[N] y) { y = Scatter(x, i, x) }", "that opset has no such operator"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(OnnxExporterError, match=f"{message}.*opset_version=9 or above"):
        OpsetStep(8)(model(f"g {text}", opset=9))
