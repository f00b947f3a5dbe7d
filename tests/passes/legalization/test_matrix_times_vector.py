"""The product of a transposed matrix and a vector is right in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import fx_onnx
from fx_onnx.passes.legalization.matrix_times_vector import LegalizeMatrixTimesVector
from tests.compare import assert_close
from tests.modules import FunctionModule
from tests.passes.checking import check, model

VECTOR = torch.randn(5)

PRODUCTS: dict[str, tuple[Callable[..., Tensor], tuple[int, ...]]] = {
    "a matrix": (lambda x, v: x.t() @ v, (5, 4)),
    "mv": (lambda x, v: torch.mv(x.t(), v), (5, 4)),
    "a constant vector": (lambda x, v: x.t() @ VECTOR + v.sum(), (5, 4)),
    "a batch": (lambda x, v: x.transpose(1, 2) @ v, (2, 5, 4)),
    "between other operators": (lambda x, v: (x.permute(1, 2, 0).select(-1, 0) * 2).t() @ v, (2, 5, 4)),
    "the vector first": (lambda x, v: v @ x.t(), (4, 5)),
    "two vectors": (lambda x, v: x @ v, (5,)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("product", "shape"), PRODUCTS.values(), ids=PRODUCTS)
def test_against_torch(product: Callable[..., Tensor], shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if product is PRODUCTS["a constant vector"][0] and dtype != torch.float32:
        pytest.skip("the constant is float32")
    args = torch.randn(shape, dtype=dtype), torch.randn(5, dtype=dtype)
    program = fx_onnx.export(FunctionModule(product).eval(), args)
    assert_close(program(*args), product(*args))


@pytest.mark.parametrize("opset", [13, 18, 20, 23, 26])
def test_a_dynamic_matrix(opset: int) -> None:
    shapes = (({0: "n", 1: "m"}, {0: "n"}),)
    module = FunctionModule(PRODUCTS["a matrix"][0]).eval()
    program = fx_onnx.export(module, (torch.randn(5, 4), VECTOR), dynamic_shapes=shapes, opset_version=opset)
    for n, m in ((5, 4), (7, 1), (1, 3), (2, 9)):
        args = torch.randn(n, m), torch.randn(n)
        assert_close(program(*args), args[0].t() @ args[1])


def test_only_products_with_a_vector_change() -> None:
    text = """g (float[4,N] a, float[N] v, float[N,4] b) => (float[4] y, float[4] z, float[4,4] w)
      { y = MatMul(a, v)\n z = MatMul(v, b)\n w = MatMul(a, b) }"""
    operators = ["Unsqueeze", "MatMul", "Squeeze", "MatMul", "MatMul"]
    check(model(text), LegalizeMatrixTimesVector(), [torch.randn(4, 5), torch.randn(5), torch.randn(5, 4)], operators)
