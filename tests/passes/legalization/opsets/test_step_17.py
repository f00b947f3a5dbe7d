"""Opset 18 → 17: each rewrite gives the operators and the numbers that it should."""

from collections.abc import Sequence

import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch import Tensor

from fx_onnx.core.errors import OnnxExporterError
from fx_onnx.passes.legalization.opsets.step_17 import STEP_17
from tests.passes.checking import check, model, run

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
         [torch.randn(8, 3)], ["Shape", "Gather", "Add", "Div", "Mul", "Sub", "Concat", "Split"]),
        ("(float[2,3,6,8] x) => (float[A,B,C,D] y) <int64[4] p = {1,0,0,2}, float v = {3.0}, int64[2] a = {3,-2}>"
         " { y = Pad(x, p, v, a) }", [IMAGE], ["Pad"]),
        ("(float[2,3,6,8] x) => (float[A,B,C,D] y) <float[2] s = {2.0,1.5}, int64[1] e = {0}>"
         ' { y = Resize<axes=[2,3], mode="linear">(x, , s) }', [IMAGE], ["Resize"]),
        ("(float[2,3,6,8] x) => (float[A,B,C,D] y) <int64[2] s = {9,5}>"
         ' { y = Resize<axes=[3,2], mode="cubic">(x, , , s) }', [IMAGE], ["Resize"]),
        ("(float[N,3,6,8] x, int64[2] s) => (float[A,B,C,D] y)"
         ' { y = Resize<axes=[2,3], mode="linear">(x, , , s) }', [IMAGE, torch.tensor([9, 5])],
         ["Shape", "Gather", "Slice", "Slice", "Concat", "Resize"]),
        ("(float[2,3,6,8] x) => (float[2,3,3,4] y) <int64[2] s = {3,4}>"
         ' { y = Resize<axes=[2,3], mode="linear", antialias=1, exclude_outside=1>(x, , , s) }', [IMAGE],
         ["Transpose", "MatMul", "Transpose", "MatMul", "Identity"]),
        ("(float[2,3,6,8] x) => (float[2,3,4,3] y) <int64[2] s = {4,3}>"
         ' { y = Resize<axes=[2,3], mode="cubic", antialias=1>(x, , , s) }', [IMAGE],
         ["Transpose", "MatMul", "Transpose", "MatMul", "Identity"]),
        ("(float[2,3,6,8] x) => (float[2,3,4,3] y) <int64[2] s = {4,3}>"
         ' { y = Resize<axes=[2,3], mode="linear", antialias=1>(x, , , s) }', [IMAGE],
         ["Transpose", "MatMul", "Transpose", "MatMul", "Identity"]),
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
    check(model(f"g {text}", opset=18), STEP_17, inputs, operators)


@pytest.mark.parametrize("op_type", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_bits(op_type: str, dtype: torch.dtype) -> None:
    """All pairs of integers at the ends of the range, around zero, and between."""
    info = torch.iinfo(dtype)
    ends = torch.tensor([info.min, info.max, info.max // 3, 0, 1, 2, 100], dtype=dtype)
    name = str(dtype).removeprefix("torch.")
    before = model(f"g ({name}[N,1] x, {name}[N] z) => ({name}[N,N] y) {{ y = {op_type}(x, z) }}", opset=18)
    STEP_17(before)
    function = {"BitwiseAnd": torch.bitwise_and, "BitwiseOr": torch.bitwise_or, "BitwiseXor": torch.bitwise_xor}
    (got,) = run(before, [ends[:, None], ends])
    assert got.dtype == dtype
    assert got.equal(function[op_type](ends[:, None], ends))


def test_a_pad_before_a_pooling_is_not_merged_into_it() -> None:
    """ONNX Runtime's optimizer would compute the maximum without the zeros of the Pad."""
    program = model(
        """g (float[1,1,4,4] x) => (float[1,1,H,W] y) <int64[8] p = {0,0,1,1,0,0,1,1}, float v = {0.0},
        int64[4] a = {0,1,2,3}> { q = Pad(x, p, v, a)\n y = MaxPool<kernel_shape=[3,3]>(q) }""",
        opset=18,
    )
    x = -torch.rand(1, 1, 4, 4) - 1
    check(program, STEP_17, [x], ["Unsqueeze", "Pad", "Squeeze", "MaxPool"])
    session = onnxruntime.InferenceSession(ir.serde.serialize_model(program).SerializeToString())
    (got,) = session.run(None, {"x": x.numpy()})
    want = torch.nn.functional.max_pool2d(torch.nn.functional.pad(x, (1, 1, 1, 1)), 3, 1)
    assert torch.from_numpy(got).equal(want)


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
        STEP_17(model(f"g {text}", opset=18))
