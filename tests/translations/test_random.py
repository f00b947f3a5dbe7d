"""Random operators: tests check sizes, dtypes, limits and moments, because the values are random."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.export import Dim
from torch.nn import functional as F

import fx_onnx
from tests.harness import Case, cases, check, f32
from tests.modules import FunctionModule

aten = torch.ops.aten
N = 20000


@cases(
    [
        Case(aten.dropout.default, f32(2, 3), 0.5, False, emits=["Identity"]),
        Case(F.dropout, f32(2, 3), 1.0, True),
        Case(F.alpha_dropout, f32(2, 3), 0.5, False),
        Case(F.dropout2d, f32(2, 3, 4, 5), 0.5, False),
        Case(F.feature_alpha_dropout, f32(2, 3, 4), 0.5, False),
        Case(aten.native_dropout.default, f32(2, 3), 0.5, False),
        Case(aten.multinomial.default, f32(3, 4, values=(0.0, 0.0, 1.0, 0.0)), 2, True, dynamic=False),
        Case(torch.bernoulli, f32(3, 4, values=(0.0, 1.0)), dynamic=False),
        Case(torch.normal, f32(3, 4), 0.0, dynamic=False),
        Case(lambda x: torch.sort(torch.randperm(x.shape[0])).values + x, f32(5)),
    ]
)
def test_random_operators_with_one_possible_result(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("function", "mean", "std"),
    [
        (lambda x: torch.rand(x.shape), 0.5, 1 / math.sqrt(12)),
        (lambda x: torch.rand_like(x), 0.5, 1 / math.sqrt(12)),
        (lambda x: torch.randn(x.shape[0], 2, dtype=torch.float64), 0, 1),
        (lambda x: torch.randn_like(x), 0, 1),
        (lambda x: torch.randint(-3, 7, x.shape), 1.5, math.sqrt(99 / 12)),
        (lambda x: torch.randint_like(x, 10), 4.5, math.sqrt(99 / 12)),
        (lambda x: torch.normal(2.0, 3.0, x.shape), 2, 3),
        (lambda x: torch.normal(x * 0, torch.ones_like(x) * 2), 0, 2),
        (lambda x: torch.bernoulli(x * 0 + 0.3), 0.3, math.sqrt(0.21)),
        (lambda x: torch.bernoulli(x, 0.3), 0.3, math.sqrt(0.21)),
        (lambda x: torch.ops.aten.uniform(x, -1.0, 3.0), 1, 4 / math.sqrt(12)),
        (lambda x: torch.ops.aten.exponential(x, 2.0), 0.5, 0.5),
        (lambda x: torch.ops.aten.geometric(x, 0.25), 4, math.sqrt(12)),
        (lambda x: torch.ops.aten.log_normal(x, 0.0, 0.5), 1.1331, 0.6039),
        (lambda x: torch.multinomial(torch.tensor([1.0, 3.0]), N, True), 0.75, math.sqrt(3 / 16)),
        (lambda x: torch.multinomial(x * 0 + 1, 1).double(), 0, 0),
        (lambda x: F.dropout(torch.ones_like(x), 0.25), 1, math.sqrt(1 / 3)),
        (lambda x: F.alpha_dropout(torch.randn_like(x), 0.25), 0, 1),
        (lambda x: F.dropout1d(torch.ones_like(x).unsqueeze(-1), 0.25), 1, math.sqrt(1 / 3)),
    ],
)
def test_moments(function: Callable[[Tensor], Tensor], mean: float, std: float, dynamic: bool) -> None:
    x = torch.zeros(N, 1)
    want = function(x)
    shapes = (({0: Dim.AUTO},),) if dynamic else None
    opset = (
        23 if dynamic else 20
    )  # ONNX Runtime's random kernels end at opset 21; a legalization pass rewrites nodes of later opsets
    program = fx_onnx.export(FunctionModule(function), (x,), dynamic_shapes=shapes, opset_version=opset, verbose=False)
    (got,) = program(x)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert abs(float(got.double().mean()) - mean) < 0.05 * max(1, std)
    assert abs(float(got.double().std()) - std) < 0.05 * max(1, std)


@pytest.mark.parametrize("opset", [20, 23])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.dropout(x * 2, 0.5, True) + 1,
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5) + 1,
        lambda x: torch.native_dropout(x * 2, 0.5, True)[0] + 1,
    ],
)
def test_dropout_between_other_operators_is_random(function: Callable[[Tensor], Tensor], opset: int) -> None:
    """ONNX Runtime removes an inner Dropout node, so dropout is emitted in other operators."""
    x = torch.randn(20, 10)
    program = fx_onnx.export(FunctionModule(function).eval(), (x,), opset_version=opset, verbose=False)
    (first,), (second,) = program(x), program(x)
    assert not torch.equal(first, second)


def test_dropout_between_recurrent_layers_is_random() -> None:
    x = torch.randn(5, 2, 3)
    gru = torch.nn.GRU(3, 4, num_layers=2, dropout=0.5).train()
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="training mode"):
        program = fx_onnx.export(gru, (x,), verbose=False)
    assert not torch.equal(program(x)[0], program(x)[0])
