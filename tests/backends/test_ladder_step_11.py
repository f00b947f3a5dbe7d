"""Opset 12 → 11: each rewrite gives the operators and the numbers that it should."""

from collections.abc import Sequence

import onnx
import onnx_ir as ir
import pytest
import torch
from torch import Tensor

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.messages.errors import OnnxExporterError
from tests.compare import assert_close
from tests.passes.checking import check, check_equal, model, run

FLOATS = torch.tensor([-2.0, -0.5, 0.0, 0.5, 3.0, float("nan"), float("inf")])
INTEGERS = torch.tensor([-(2**62), -3, 0, 2, 2**62])


@pytest.mark.parametrize(
    ("text", "inputs", "operators"),
    [
        ("(int64[N] x, int64[N] z) => (int64[N] y) { y = Max(x, z) }", [INTEGERS, INTEGERS.flip(0)],
         ["Greater", "Where"]),
        ("(int64[N] x, int64[N] z) => (int64[N] y) { y = Min(x, z, x) }", [INTEGERS, INTEGERS.flip(0)],
         ["Less", "Where", "Less", "Where"]),
        ("(float[N] x) => (float[N] y) { y = Max(x, x) }", [FLOATS], ["Max"]),
        ("(int64[N] x) => (int64[N] y) <int64 l = {-1}, int64 h = {1}> { y = Clip(x, l, h) }", [INTEGERS],
         ["Greater", "Where", "Less", "Where"]),
        ("(double[N] x) => (double[N] y) <double h = {1.0}> { y = Clip(x, , h) }", [FLOATS.double()],
         ["Min"]),
        ("(float[N] x) => (float[N] y) <float l = {-1.0}> { y = Clip(x, l) }", [FLOATS], ["Clip"]),
        ("(float[N] x) => (float[N] y) <int64 e = {2}> { y = Pow(x, e) }", [FLOATS], ["Pow"]),
        ("(float[N] x, int64[N] e) => (float[N] y) { y = Pow(x, e) }", [FLOATS[:5], torch.arange(5)],
         ["Cast", "Pow"]),
        ("(int64[N] x) => (int64[N] y) <int64 e = {5}> { y = Pow(x, e) }", [torch.arange(-4, 4)],
         ["Mul", "Mul", "Mul"]),
        ("(float[N] x, float[N] z) => (bool[N] y) { y = GreaterOrEqual(x, z) }", [FLOATS, FLOATS.flip(0)],
         ["Greater", "Equal", "Or"]),
        ("(int64[N] x, int64[N] z) => (bool[N] y) { y = LessOrEqual(x, z) }", [INTEGERS, INTEGERS.flip(0)],
         ["Less", "Equal", "Or"]),
        ("(float[N] x) => (float[N] y) { y = Celu<alpha=0.7>(x) }", [FLOATS[:5]],
         ["Div", "Exp", "Sub", "Mul", "Max", "Min", "Add"]),
        ("(float[N] x) => (float[N] y) { y = Dropout(x) }", [FLOATS], ["Identity"]),
        ("(float[N] x) => (float[N] y) { c = Constant<value_floats=[1.0,2.0,3.0,4.0,5.0,6.0,7.0]>()\n y = Add(x, c) }",
         [FLOATS], ["Constant", "Add"]),
        ('(float[A,B,C] x, float[A,C,D] z) => (float[A,D,B] y) { y = Einsum<equation="abc,acd->adb">(x, z) }',
         [torch.randn(2, 3, 4), torch.randn(2, 4, 5)], ["Transpose", "Transpose", "MatMul", "Transpose"]),
        ('(float[A,B] x, float[B,C] z, float[C] w) => (float[A] y) { y = Einsum<equation="ab,bc,c->a">(x, z, w) }',
         [torch.randn(2, 3), torch.randn(3, 4), torch.randn(4)],
         ["Unsqueeze", "Unsqueeze", "Mul", "Unsqueeze", "Mul", "ReduceSum"]),
        ('(float[A,B] x) => (float[B,A] y) { y = Einsum<equation="ab->ba">(x) }', [torch.randn(2, 3)],
         ["Transpose"]),
        ("(float[A,B] x, int64[N,1] i) => (float[C,D] y) { y = GatherND(x, i) }",
         [torch.randn(3, 2), torch.tensor([[2], [0]])], ["GatherND"]),
    ],
)  # fmt: skip
def test_rewritten(text: str, inputs: Sequence[Tensor], operators: Sequence[str]) -> None:
    check(model(f"g {text}", opset=12), OpsetStep(11), inputs, operators)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(int64[N] x, float[N] e) => (int64[N] y) { y = Pow(x, e) }", "to the power of a float"),
        ("(float[N] x, float r) => (float[N] y) <bool t = {1}> { y = Dropout(x, r, t) }", "its ratio is computed"),
        ("(float[N] x, bool t) => (float[N] y) <float r = {0.5}> { y = Dropout(x, r, t) }", "is computed at run time"),
        ("(float[A,B] x, int64[A,1] i) => (float[A] y) { y = GatherND<batch_dims=1>(x, i) }", "batch axes"),
        ("(float[A,B] x) => (int64[A,B] y) { y = ArgMax<axis=0, select_last_index=1>(x) }", "select_last_index"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(OnnxExporterError, match=f"{message}.*opset_version=12 or above"):
        OpsetStep(11)(model(f"g {text}", opset=12))


def test_dropout_in_training() -> None:
    """A third of the elements is dropped, the others are scaled, and the mask tells which."""
    text = (
        """(float[N] x) => (float[N] y, bool[N] m) <float r = {0.33333333}, bool t = {1}> { y, m = Dropout(x, r, t) }"""
    )
    program = model(f"g {text}", opset=12)
    OpsetStep(11)(program)
    onnx.checker.check_model(ir.serde.serialize_model(program), full_check=True)
    y, mask = run(program, [torch.full((30000,), 2.0)])
    assert_close(y, 3.0 * mask)
    assert abs(float(mask.float().mean()) - 2 / 3) < 0.02


def test_the_mask_of_an_inactive_dropout() -> None:
    program = model("g (float[N] x) => (float[N] y, bool[N] m) { y, m = Dropout(x) }", opset=12)
    check_equal(program, OpsetStep(11), [FLOATS])
