"""Reductions and scatters as other reductions."""

import pytest
import torch

from fx_onnx.passes.legalization.reductions import legalize_log_sum_exp, legalize_squares
from tests.compare import assert_close
from tests.exporting import exported, operators
from tests.passes.checking import check, model

# ---------------------------------------------------------------- norms and logarithms of sums as ReduceSum


X = torch.tensor([[1.5, -2.0, 0.25], [100.0, 99.0, 0.5]])


@pytest.mark.parametrize("keepdims", [0, 1])
def test_exponentials_do_not_overflow(keepdims: int) -> None:
    text = f"g (float[M,N] x) => (float[] y) <int64[1] a = {{1}}> {{ y = ReduceLogSumExp<keepdims={keepdims}>(x, a) }}"
    expected = ["ReduceMax", "Clip", "Sub", "Exp", "ReduceSum", "Log", "Add"] + ["ReduceMax"] * (not keepdims)
    check(model(text, opset=28), legalize_log_sum_exp, [X], expected)


# ---------------------------------------------------------------- means of squares


@pytest.mark.parametrize(
    "norm",
    [
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-7) * torch.ones(8, dtype=x.dtype),
        lambda x: x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-7) * torch.ones(8, dtype=x.dtype),
    ],
)
def test_onnxruntime_keeps_the_epsilon_of_a_norm_in_float64(norm: object) -> None:
    """Otherwise it adds 1e-5, ten times the mean of these squares."""
    x = torch.randn(2, 8, dtype=torch.float64) * 1e-3
    assert_close(exported(norm, x)(x), norm(x))


def test_the_norm_in_float32_stays_fusible() -> None:
    program = exported(lambda x: x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-7), torch.randn(2, 8))
    assert operators(program) == ["Pow", "ReduceMean", "Add", "Sqrt", "Div"]


@pytest.mark.parametrize("opset", [18, 20, 23])
@pytest.mark.parametrize("rows", [None, {0: "rows"}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [torch.float32, torch.float16, torch.bfloat16])
def test_a_layer_norm_of_two_dtypes_is_loaded(
    scale: torch.dtype, dtype: torch.dtype, rows: dict[int, str] | None, opset: int
) -> None:
    """ONNX Runtime would fuse it, with its Casts, into a LayerNormalization that admits one dtype only."""
    weight, bias = torch.linspace(0.5, 2, 8).to(scale), torch.linspace(-1, 1, 8).to(scale)

    def norm(x: torch.Tensor) -> torch.Tensor:
        x = x.float()
        x = x - x.mean(-1, keepdim=True)
        return (x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)).to(scale) * weight + bias

    x = torch.randn(3, 8, dtype=dtype)
    program = exported(norm, x, dynamic_shapes=(rows,), opset_version=opset)
    assert_close(program(x), norm(x))


@pytest.mark.parametrize(
    ("dtype", "exponent", "end", "operator"),
    [
        ("double", 2.0, "ReduceMean(p, axes)", "Mul"),
        ("float", 2.0, "ReduceMean(p, axes)", "Pow"),
        ("double", 3.0, "ReduceMean(p, axes)", "Pow"),
        ("double", 2.0, "ReduceSum(p, axes)", "Pow"),
    ],
)
def test_only_means_of_squares(dtype: str, exponent: float, end: str, operator: str) -> None:
    text = f"""g ({dtype}[N,4] x) => ({dtype}[N,1] y) <int64[1] axes = {{1}}, {dtype} e = {{{exponent}}}> {{
      p = Pow(x, e)\n y = {end}
    }}"""
    x = torch.randn(2, 4, dtype=torch.float64 if dtype == "double" else torch.float32)
    check(model(text), legalize_squares, [x], [operator, end.partition("(")[0]])
