"""Opset 13 → 12: each rewrite gives the operators and the numbers that it should."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.messages.errors import OnnxExporterError
from tests.passes.checking import check, model

X = torch.randn(2, 3, 4)
SCALES, ZEROS = torch.tensor([0.1, 0.5, 2.0]), torch.tensor([0, 3, 250], dtype=torch.uint8)


@pytest.mark.parametrize(
    ("text", "inputs", "operators"),
    [
        ("(float[2,3,4] x) => (float[A,B,C,D] y) <int64[1] a = {-1}> { y = Unsqueeze(x, a) }", [X], ["Unsqueeze"]),
        ("(float[1,3,1] x) => (float[3] y) { y = Squeeze(x) }", [torch.randn(1, 3, 1)], ["Squeeze"]),
        ("(float[2,3,4] x) => (float[A,B] y) <int64[1] a = {1}> { y = ReduceSum<keepdims=0>(x, a) }", [X],
         ["ReduceSum"]),
        ("(float[2,3,4] x) => (float[A,B,C] y) { y = ReduceSum<noop_with_empty_axes=1>(x) }", [X], ["Identity"]),
        ("(float[2,3,4] x) => (float[A,B,C] y, float[D,E,F] z) <int64[2] s = {1,3}> { y, z = Split<axis=2>(x, s) }",
         [X], ["Split"]),
        ("(float[2,3,4] x, int64[2] s) => (float[A,B,C] y, float[D,E,F] z) { y, z = Split<axis=-1>(x, s) }",
         [X, torch.tensor([3, 1])], ["Slice", "Add", "Slice", "Slice", "Add", "Slice"]),
        ("(float[2,3,4] x) => (float[2,3,4] y) { y = Softmax(x) }", [X], ["Softmax"]),
        ("(float[2,3,4] x) => (float[2,3,4] y) { y = LogSoftmax<axis=1>(x) }", [X],
         ["Transpose", "LogSoftmax", "Transpose"]),
        ("(float[2,3,4] x) => (float[2,3,4] y) { y = Hardmax<axis=-3>(x) }", [X],
         ["Transpose", "Hardmax", "Transpose"]),
        ('(float[1,1,3,4] x) => (float[A,B,C,D] y) <float[4] s = {1.0,1.0,2.0,2.0}> { y = Resize(x, , s) }',
         [X[:1, None]], ["Resize"]),
        ('(float[1,1,3,4] x) => (float[A,B,C,D] y) <int64[4] s = {1,1,5,7}> { y = Resize<mode="linear">(x, , , s) }',
         [X[:1, None]], ["Resize"]),
        ("(float[2,3,4] x, float[3] s, uint8[3] z) => (uint8[2,3,4] y) { y = QuantizeLinear<axis=1>(x, s, z) }",
         [X * 9, SCALES, ZEROS], ["Reshape", "Reshape", "Div", "Round", "Cast", "Add", "Clip", "Cast"]),
        ("(uint8[2,3,4] x, float[3] s, uint8[3] z) => (float[2,3,4] y) { y = DequantizeLinear<axis=-2>(x, s, z) }",
         [torch.randint(0, 256, (2, 3, 4), dtype=torch.uint8), SCALES, ZEROS],
         ["Reshape", "Reshape", "Cast", "Cast", "Sub", "Mul"]),
        ("(float[2,3,4] x, float s) => (uint8[2,3,4] y) { y = QuantizeLinear(x, s) }", [X, torch.tensor(0.1)],
         ["QuantizeLinear"]),
        ("(bool[2,3] x) => (bool[A,B] y) <int64[4] p = {0,1,0,0}> { y = Pad(x, p) }", [torch.rand(2, 3) > 0.5],
         ["Cast", "Pad", "Cast"]),
    ],
)  # fmt: skip
def test_rewritten(text: str, inputs: Sequence[Tensor], operators: Sequence[str]) -> None:
    check(model(f"g {text}", opset=13), OpsetStep(12), inputs, operators)


def test_the_rank_is_that_of_the_result() -> None:
    """A Cast that a translation emits may have no shape."""
    program = model("g (float[2,3,4] x) => (float[2,3,4] y) { a = Abs(x)\n y = Softmax<axis=1>(a) }", opset=13)
    program.graph[0].outputs[0].shape = None
    check(program, OpsetStep(12), [X], ["Abs", "Transpose", "Softmax", "Transpose"])


def test_bfloat16_is_refused() -> None:
    """Opset 12 has no operator that admits bfloat16, and no Cast either."""
    with pytest.raises(OnnxExporterError, match=r"does not admit the element type BFLOAT16.*opset_version=13"):
        OpsetStep(12)(model("g (bfloat16[N] x) => (bfloat16[N] y) { y = Abs(x) }", opset=13))


def test_axes_that_the_run_computes_are_refused() -> None:
    with pytest.raises(OnnxExporterError, match=r"its axes are computed at run time.*opset_version=13"):
        OpsetStep(12)(model("g (float[1,3] x, int64[1] a) => (float[N] y) { y = Squeeze(x, a) }", opset=13))
