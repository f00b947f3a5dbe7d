"""The target onnxruntime-cuda, which is compared with the table of the provider's kernels and their known defects."""

from collections.abc import Callable

import pytest
import torch
from onnx_ir import DataType

from fx_onnx.passes.legalization.kernel_tables import kernel_table
from tests.compare import assert_close
from tests.exporting import exported, operators


def test_integer_argmax_has_a_kernel_as_topk() -> None:
    x = torch.tensor([[3, 7, 7, -1]])
    program = exported(lambda x: x.argmax(1), x, target="onnxruntime-cuda")
    assert program.supports("onnxruntime-cuda")
    assert operators(program) == ["TopK", "Squeeze"]
    assert_close(program(x), x.argmax(1))
    assert not exported(lambda x: x.argmax(1), x).supports("onnxruntime-cuda")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes_with_a_kernel_get_no_casts(dtype: torch.dtype) -> None:
    """The CPU provider computes neither the product of bfloat16 nor the convolution of float64."""
    weight = torch.ones(2, 3, 1, dtype=dtype)
    x = torch.ones(1, 3, 4, dtype=dtype)
    function = lambda x: torch.conv1d(x, weight.to(dtype)).relu() @ x.mT  # noqa: E731
    program = exported(function, x, target="onnxruntime-cuda", opset_version=22)
    assert program.supports("onnxruntime-cuda")
    assert operators(program) == ["Conv", "Relu", "Transpose", "MatMul"]


def test_sigmoid_of_bfloat16_is_computed_in_float32() -> None:
    x = torch.linspace(-9, 9, 99, dtype=torch.bfloat16)
    program = exported(torch.sigmoid, x, target="onnxruntime-cuda")
    assert operators(program) == ["Cast", "Sigmoid", "Cast"]
    assert torch.equal(program(x)[0], x.sigmoid())


@pytest.mark.parametrize(
    ("dtype", "is_scaled_after", "is_read", "square"),
    [
        (torch.bfloat16, False, False, "Mul"),  # as in Gemma
        (torch.bfloat16, True, False, "Pow"),  # as in Llama: the provider has a kernel of bfloat16 alone
        (torch.bfloat16, True, True, "Mul"),  # the Cast of x stays, so that the norm has an input of float32
        (torch.float16, False, False, "Pow"),
        (torch.float32, False, False, "Pow"),
    ],
)
def test_the_root_mean_square_of_bfloat16_is_not_fused_with_a_scale_of_float32(
    dtype: torch.dtype, is_scaled_after: bool, is_read: bool, square: str
) -> None:
    weight = torch.linspace(0.5, 2, 8).to(dtype)

    def norm(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wide = x.float()
        result = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        scaled = weight * result.to(dtype) if is_scaled_after else (result * (1 + weight.float())).to(dtype)
        return (scaled, wide.sum(-1)) if is_read else (scaled,)

    x = torch.randn(3, 8, dtype=dtype)
    program = exported(norm, x, target="onnxruntime-cuda", opset_version=18)
    assert next(name for name in operators(program) if name != "Cast") == square
    assert program.supports("onnxruntime-cuda")
    if not is_scaled_after:  # otherwise the CPU provider lacks the product of bfloat16
        assert_close(program(x), norm(x))


def test_a_norm_without_a_kernel_is_reported() -> None:
    """No kernel of the fused norm in the provider's own table takes bfloat16 and float32."""
    weight = torch.linspace(0.5, 2, 8)
    norm = lambda x: x.float() / torch.sqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6) * weight  # noqa: E731
    program = exported(norm, torch.randn(3, 8, dtype=torch.bfloat16), opset_version=18)
    assert [each.operator for each in program.supports("onnxruntime-cuda").missing] == ["Pow"]
    rows = kernel_table("onnxruntime-cuda").kernels("SimplifiedLayerNormalization", 1)
    assert not any({DataType.BFLOAT16, DataType.FLOAT} <= row.admitted["T"] | row.admitted["V"] for row in rows)


def test_a_node_of_the_cpu_provider_gets_casts_for_it() -> None:
    """No provider has GridSample of bfloat16; Unique of rows runs in the CPU provider only, which has none either."""
    x = torch.tensor([[3, 0], [7, 3], [3, 0]], dtype=torch.bfloat16)
    program = exported(lambda x: x.unique(dim=0), x, target="onnxruntime-cuda")
    assert [each.operator for each in program.supports("onnxruntime-cuda").missing] == ["Unique"]
    assert_close(program(x), x.unique(dim=0))


def test_unique_of_a_vector_has_kernels() -> None:
    x = torch.tensor([3, 0, 7, 3])
    program = exported(lambda x: x.unique(return_inverse=True, return_counts=True), x, target="onnxruntime-cuda")
    assert program.supports("onnxruntime-cuda") and program.supports("tensorrt")
    assert_close(program(x), x.unique(return_inverse=True, return_counts=True))


@pytest.mark.parametrize(
    ("function", "missing", "expected"),
    [
        (lambda x: x.index_add(0, torch.tensor([0, 2, 0]), x), "ScatterND", "ScatterElements"),
        (lambda x: x.pow(x), "Pow", "Mul"),
        (lambda x: x.amax(1), "ReduceMax", "ReduceMax"),
    ],
)
def test_known_defects_are_replaced_or_reported(
    function: Callable[[torch.Tensor], torch.Tensor], missing: str, expected: str
) -> None:
    """Whatever the table lists: the kernels of these operators fail or are wrong for int64."""
    x = torch.tensor([[3, 1], [0, 5], [2, -1]])
    assert [each.operator for each in exported(function, x).supports("onnxruntime-cuda").missing] == [missing]
    program = exported(function, x, target="onnxruntime-cuda")
    assert expected in operators(program)
    assert bool(program.supports("onnxruntime-cuda")) == (expected != missing)
    assert_close(program(x), function(x))
