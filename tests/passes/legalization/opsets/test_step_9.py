"""Opset 10 → 9: each rewrite computes the same numbers."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fx_onnx.core.errors import OnnxExporterError
from fx_onnx.passes.legalization.opsets.step_9 import STEP_9
from tests.passes.checking import check, check_equal, model

X = torch.randn(2, 5, 7)
IMAGE = torch.randn(1, 2, 7, 8)
FLOATS = torch.tensor([-2.5, 0.5, 1.5, 3.4e38, float("nan"), float("inf"), -float("inf")])
BOUNDS = [torch.tensor(bounds) for bounds in ([1, -3], [4, 100], [-100, -1], [5, 2])]


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
        ("(double[N] x) => (bool[N] y) { y = IsInf<detect_positive=0>(x) }", [FLOATS.double()], ["Less"]),
        ("(float[N] x) => (float[N] y) { y = ThresholdedRelu<alpha=1.0>(x) }", [FLOATS], ["Greater", "Where"]),
    ],
)  # fmt: skip
def test_rewritten(text: str, inputs: Sequence[Tensor], operators: Sequence[str]) -> None:
    check(model(f"g {text}", opset=10), STEP_9, inputs, operators)


@pytest.mark.parametrize("steps", ["1,1", "2,1", "-1,3", "-2,-3"])
def test_slices_by_bounds_of_the_run(steps: str) -> None:
    """Bounds beyond the ends, from the end, and in the wrong order; constant bounds with other steps than 1."""
    text = f"""(float[A,B,C] x, int64[2] s, int64[2] e) => (float[A,D,E] y)
    <int64[2] a = {{1,2}}, int64[2] t = {{{steps}}}>
    {{ y = Slice(x, s, e, a, t) }}"""
    for starts in BOUNDS:
        for ends in (*BOUNDS, torch.tensor([-100, -100])):
            check_equal(model(f"g {text}", opset=10), STEP_9, [X, starts, ends])


def test_a_slice_with_a_constant_step() -> None:
    """The flip of an axis of static size needs no computation of indices."""
    text = """(float[2,5,7] x) => (float[2,5,7] y)
    <int64[1] s = {-1}, int64[1] e = {-9223372036854775808}, int64[1] a = {2}, int64[1] t = {-1}>
    { y = Slice(x, s, e, a, t) }"""
    check(model(f"g {text}", opset=10), STEP_9, [X], ["Gather", "Identity"])


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_mod(dtype: str, fmod: int) -> None:
    text = f"({dtype}[N] x, {dtype}[N] z) => ({dtype}[N] y) {{ y = Mod<fmod={fmod}>(x, z) }}"
    a, b = torch.tensor([7, -7, 7, -7, 6, -6, 0, 3]), torch.tensor([3, 3, -3, -3, 3, -3, 5, 2**31])
    inputs = [x.to(getattr(torch, dtype)) for x in (a, b)]  # 2³¹ is negative as int32
    check_equal(model(f"g {text}", opset=10), STEP_9, inputs)


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("(float[N] x) => (uint8[N] y) <float s = {0.5}, uint8 z = {100}> { y = QuantizeLinear(x, s, z) }",
         [torch.arange(-8.0, 8.0) / 4]),
        ("(float[N] x) => (int8[N] y) <float s = {0.02}, int8 z = {3}> { y = QuantizeLinear(x, s, z) }",
         [torch.arange(-8.0, 8.0)]),
        ("(int8[N] x) => (float[N] y) <float s = {0.5}, int8 z = {3}> { y = DequantizeLinear(x, s, z) }",
         [torch.arange(-8, 8, dtype=torch.int8)]),
        # weights of 7 bits: test_products.py has the reason
        ("(uint8[A,B] x, int8[B,C] w) => (int32[A,C] y) <uint8 z = {3}> { y = MatMulInteger(x, w, z) }",
         [torch.randint(0, 255, (2, 9), dtype=torch.uint8), torch.randint(-64, 63, (9, 3), dtype=torch.int8)]),
    ],
)  # fmt: skip
def test_quantized(text: str, inputs: Sequence[Tensor]) -> None:
    check_equal(model(f"g {text}", opset=10), STEP_9, inputs)


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
        STEP_9(model(f"g {text}", opset=10))
