"""Activation functions and softmax."""

import math

import pytest
import torch

import fx_onnx
from tests.harness import Case, cases, check, f16, f32, f64, i32, i64, u8

aten = torch.ops.aten
SPECIAL = (0.0, -0.0, 0.5, 1.5, -1.5, 30.0, -0.3, math.inf, math.nan)


@cases(
    [
        Case(aten.relu.default, f32(9, values=SPECIAL), emits=["Relu"]),
        Case(aten.relu.default, i32(2, 3), emits=["Relu"]),
        Case(aten.relu.default, u8(2, 3)),
        Case(aten.relu6.default, f32(2, 3), emits=["Clip"]),
        Case(aten.hardtanh.default, f32(2, 3), -0.5, 0.5, emits=["Clip"]),
        Case(aten.hardtanh.default, i64(2, 3), emits=["Greater", "Where", "Less", "Where"]),
        Case(aten.hardswish.default, f32(2, 3), emits=["HardSwish"]),
        Case(aten.hardsigmoid.default, f32(2, 3), emits=["HardSigmoid"]),
        Case(aten.leaky_relu.default, f32(9, values=SPECIAL), emits=["LeakyRelu"]),
        Case(aten.leaky_relu.default, f32(2, 3), 0.2, emits=["LeakyRelu"]),
        Case(aten.prelu.default, f32(2, 3, 4), f32(3), emits=["Unsqueeze", "PRelu"]),
        Case(aten.prelu.default, f32(2, 3), f32(3), emits=["PRelu"]),
        Case(aten.prelu.default, f32(2, 3, 4), f32(1), emits=["PRelu"]),
        Case(aten.prelu.default, f32(), f32(1)),
        Case(aten.threshold.default, f32(9, values=SPECIAL), 0.1, 20.0, emits=["LessOrEqual", "Where"]),
        Case(aten.rrelu.default, f32(2, 3), emits=["LeakyRelu"]),
    ]
)
def test_rectifiers(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.silu.default, f32(2, 3), emits=["Swish"]),
        Case(aten.silu.default, f32(2, 3), opsets=[20], emits=["Sigmoid", "Mul"]),
        Case(aten.gelu.default, f32(2, 3), emits=["Gelu"]),
        Case(aten.gelu.default, f32(2, 3), opsets=[19], emits=["Mul", "Div", "Erf", "Add", "Mul"]),
        Case(aten.gelu.default, f32(2, 3), approximate="tanh", emits=["Gelu"]),
        Case(aten.selu.default, f32(2, 3), emits=["Selu"]),
        Case(aten.mish.default, f32(2, 3), emits=["Mish"]),
        Case(aten.elu.default, f32(9, values=SPECIAL), 0.5, emits=["Elu"]),
        Case(aten.elu.default, f32(9, values=SPECIAL), 0.5, 2.0, 3.0),
        Case(aten.celu.default, f32(2, 3), 0.5, emits=["Celu"]),
        Case(aten.celu.default, f64(2, 3), 0.5, emits=["Celu"]),
        Case(aten.softplus.default, f32(9, values=SPECIAL), emits=["Softplus"]),
        Case(aten.softplus.default, f32(2, 3), 2.0, emits=["Mul", "Softplus", "Div"]),
        Case(aten.softplus.default, f32(2, 3), 2.0, 1.0),
        Case(aten.softplus.default, f16(4, values=(-8.0, 12.0, 100.0, 6e4)), opsets=[18, 20]),
        Case(aten.log_sigmoid.default, f16(4, values=(8.0, -12.0, -100.0, -6e4)), opsets=[18, 20]),
        Case(aten.log_sigmoid.default, f32(2, 3), emits=["Neg", "Softplus", "Neg"]),
        Case(aten.glu.default, f32(3, 4), emits=["Split", "Sigmoid", "Mul"], dynamic=False),
        Case(aten.glu.default, f32(4, 3), 0, emits=["Split", "Sigmoid", "Mul"], dynamic=False),
        Case(aten.hardshrink.default, f32(9, values=SPECIAL), emits=["Abs", "LessOrEqual", "Where"]),
        Case(aten.softshrink.default, f32(9, values=SPECIAL), emits=["Clip", "Sub"]),
    ]
)
def test_exponential_activations(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.softmax.int, f32(2, 3), -1, emits=["Softmax"]),
        Case(aten.softmax.int, f32(2, 3), 0, emits=["Softmax"]),
        Case(aten.softmax.int, f16(2, 3), -1, torch.float32, emits=["Cast", "Softmax"]),
        Case(aten.softmax.int, i64(2, 3), 1, torch.float64, emits=["Cast", "Softmax"]),
        Case(aten.softmax.int, f32(), 0, emits=["Unsqueeze", "Softmax", "Squeeze"]),
        Case(aten.softmax.int, f32(2, 0), 1),
        Case(aten.log_softmax.int, f32(2, 3, 4), 1, emits=["LogSoftmax"]),
        Case(aten._softmax.default, f32(2, 3), 1, False, emits=["Softmax"]),
        Case(aten._log_softmax.default, f32(2, 3), 1, False, emits=["LogSoftmax"]),
    ]
)
def test_softmax(case: Case) -> None:
    check(case)


def test_softmax_of_integers_is_refused() -> None:
    """torch's fake tensors admit integers, as in ``softmax(x.nonzero(), 1)``; eager mode fails unless it is empty."""

    class Softmax(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nonzero(x).softmax(1)

    with pytest.raises(fx_onnx.TranslationError, match="torch computes Softmax of floating-point tensors only"):
        fx_onnx.export(Softmax().eval(), (torch.ones(2, 2),))
