"""Products of matrices in the forms that runtimes compute rightly."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import fx_onnx
from fx_onnx.passes.legalization.products import (
    legalize_matrix_times_vector,
    legalize_saturating_products,
    legalize_scales,
)
from tests.compare import assert_close
from tests.modules import FunctionModule
from tests.one_capture import OneCapture
from tests.passes.checking import check, model, run
from tests.torch_versions import needs

# ---------------------------------------------------------------- products of a matrix and a vector


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
def test_products_with_a_vector(product: Callable[..., Tensor], shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if product is PRODUCTS["a constant vector"][0] and dtype != torch.float32:
        pytest.skip("the constant is float32")
    args = torch.randn(shape, dtype=dtype), torch.randn(5, dtype=dtype)
    program = fx_onnx.export(FunctionModule(product).eval(), args)
    assert_close(program(*args), product(*args))


def test_a_dynamic_matrix() -> None:
    shapes = (({0: "n", 1: "m"}, {0: "n"}),)
    module = FunctionModule(PRODUCTS["a matrix"][0]).eval()
    captured = OneCapture(module, (torch.randn(5, 4), VECTOR), dynamic_shapes=shapes)
    for opset in (18, 20, 23, 26):
        program = captured.export(opset_version=opset)
        for n, m in ((5, 4), (7, 1), (1, 3), (2, 9)):
            args = torch.randn(n, m), torch.randn(n)
            assert_close(program(*args), args[0].t() @ args[1])


def test_only_products_with_a_vector_change() -> None:
    text = """g (float[4,N] a, float[N] v, float[N,4] b) => (float[4] y, float[4] z, float[4,4] w)
      { y = MatMul(a, v)\n z = MatMul(v, b)\n w = MatMul(a, b) }"""
    operators = ["Unsqueeze", "MatMul", "Squeeze", "MatMul", "MatMul"]
    check(model(text), legalize_matrix_times_vector, [torch.randn(4, 5), torch.randn(5), torch.randn(5, 4)], operators)


# ---------------------------------------------------------------- products that saturate


@pytest.mark.parametrize(
    ("inputs", "zeros"), [("", ""), ("", ", z"), ("", ", , w"), (", int8[4,3] b", ""), (", int8[4,3] b", ", z, w")]
)
def test_pairs_of_products_do_not_saturate(inputs: str, zeros: str) -> None:
    """ONNX Runtime saturates the pairs of some processors only, so the numbers are those of PyTorch."""
    a, b = torch.randint(200, 256, (5, 4), dtype=torch.uint8), torch.full((4, 3), 127, dtype=torch.int8)
    constants = "uint8 z = {3}, int8 w = {-5}"
    text = f"g (uint8[M,4] a{inputs}) => (int32[M,3] y) <{constants}> {{ y = MatMulInteger(a, b{zeros}) }}"
    program = model(text, None if inputs else {"b": b})
    assert legalize_saturating_products(program).modified
    want = (a.int() - 3 * ("z" in zeros)) @ (b.int() + 5 * ("w" in zeros))
    assert run(program, [a, b] if inputs else [a])[0].equal(want)


@needs("uint8 products")
@pytest.mark.parametrize("dynamic", [False, True])
def test_an_export_of_a_product_of_integers(dynamic: bool) -> None:
    a, b = torch.randint(200, 256, (32, 64)).to(torch.uint8), torch.full((64, 32), 127, dtype=torch.int8)
    module = FunctionModule(torch._int_mm if dynamic else lambda a: torch._int_mm(a, b))
    args = (a, b) if dynamic else (a,)
    program = fx_onnx.export(module, args, verbose=False)
    assert_close(program(*args), module(*args))


# ---------------------------------------------------------------- attention


@pytest.mark.parametrize("scale", [-0.5, 0.0])
@pytest.mark.parametrize("opset", [23, 24])
def test_attention_with_a_scale_that_is_not_positive(scale: float, opset: int) -> None:
    """ONNX Runtime refuses the attribute."""
    q, k, v = torch.randn(3, 2, 4, 3, 16)
    module = FunctionModule(lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scale))
    program = fx_onnx.export(module, (q, k, v), opset_version=opset, verbose=False)
    assert [node.op_type for node in program.model.graph] == ["Mul", "Attention"]
    assert_close(program(q, k, v)[0], module(q, k, v))


def test_all_results_of_attention_are_kept() -> None:
    text = """g (float[1,2,3,16] q, float[1,2,3,16] k, float[1,2,3,16] v, float[1,2,2,16] p, float[1,2,2,16] w) =>
    (float[1,2,3,16] y, float[1,2,5,16] a, float[1,2,5,16] b) { y, a, b = Attention<scale=-0.5>(q, k, v, , p, w) }"""
    program = model(text, opset=23)
    legalize_scales(program)
    q, k, v, p, w = (torch.randn(1, 2, size, 16) for size in (3, 3, 3, 2, 2))
    keys, values = torch.cat([p, k], 2), torch.cat([w, v], 2)
    wanted = (torch.softmax(-0.5 * q @ keys.mT, -1) @ values, keys, values)
    for found, want in zip(run(program, [q, k, v, p, w]), wanted, strict=True):
        assert_close(found, want)
