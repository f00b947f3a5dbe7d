"""Fusion of MatMul, Add and Transpose into Gemm, and of a Gemm between two Reshapes."""

import pytest
import torch

from fx_onnx.passes.fusion.linear_layers import batch_gemm, fuse_gemm
from tests.passes.checking import check, model, origins

WEIGHTS = {"w": torch.randn(3, 5), "v": torch.randn(5, 3), "b": torch.randn(5), "row": torch.randn(1, 5)}


@pytest.mark.parametrize("bias", ["b", "row"])
@pytest.mark.parametrize("kind", ["float", "double", "float16"])
def test_bias(bias: str, kind: str) -> None:
    """The addend may be either operand."""
    dtype = {"float": torch.float32, "double": torch.float64, "float16": torch.float16}[kind]
    weights = {name: tensor.to(dtype) for name, tensor in WEIGHTS.items()}
    program = model(f"g ({kind}[N,3] x) => ({kind}[N,5] y) {{ m = MatMul(x, w)\n y = Add({bias}, m) }}", weights)
    check(program, fuse_gemm, [torch.randn(4, 3, dtype=dtype)], ["Gemm"])
    assert origins(program, "y") == {"%m", "%y"}


def test_addend_of_the_same_shape() -> None:
    """The addend may have the shape of the product."""
    program = model("g (float[N,3] x, float[N,5] r) => (float[N,5] y) { m = MatMul(x, w)\n y = Add(m, r) }", WEIGHTS)
    check(program, fuse_gemm, [torch.randn(4, 3), torch.randn(4, 5)], ["Gemm"])


def test_transposes() -> None:
    """Both operands are transposed; another consumer keeps one Transpose."""
    program = model("""g (float[3,N] x) => (float[N,5] y, float[N,3] z) {
      t = Transpose(x)\n u = Transpose<perm=[1,0]>(v)\n m = MatMul(t, u)\n y = Add(m, b)\n z = Relu(t)
    }""", WEIGHTS)  # fmt: skip
    check(program, fuse_gemm, [torch.randn(3, 4)], ["Transpose", "Gemm", "Relu"])


def test_gemm_without_bias() -> None:
    """A Gemm without an addend gets one. Its transB cancels with a Transpose."""
    program = model("""g (float[N,3] x) => (float[N,5] y) {
      u = Transpose<perm=[1,0]>(w)\n m = Gemm<transB=1, alpha=0.5>(x, u)\n y = Add(m, b)
    }""", WEIGHTS)  # fmt: skip
    check(program, fuse_gemm, [torch.randn(4, 3)], ["Gemm"])


@pytest.mark.parametrize(
    "body",
    [
        "m = MatMul(x, w)\n y = Add(m, wide)",  # the sum is larger than the product
        "m = MatMul(x, w)\n n = Add(m, b)\n y = Add(n, m)",  # the product has another user
        "m = MatMul(x, w)\n y = Relu(m)",  # nothing to save
    ],
)
def test_declined(body: str) -> None:
    """A sum larger than the product, a product with another consumer, and a MatMul without Transposes."""
    program = model(f"g (float[1,3] x) => (float[A,5] y) {{ {body} }}", {**WEIGHTS, "wide": torch.randn(4, 5)})
    operators = [node.op_type for node in program.graph]
    if "n = " in body:
        operators = ["MatMul", "Add", "Add"]
    check(program, fuse_gemm, [torch.randn(1, 3)], operators)


def test_three_dims_are_left_alone() -> None:
    """Gemm accepts matrices only."""
    program = model("g (float[N,2,3] x) => (float[N,2,5] y) { m = MatMul(x, w)\n y = Add(m, b) }", WEIGHTS)
    check(program, fuse_gemm, [torch.randn(4, 2, 3)], ["MatMul", "Add"])


def test_a_product_outside_a_loop_stays_there() -> None:
    """Inside the Loop it would be computed at every iteration."""
    program = model("""g (float[N,3] x, int64 count) => (float[N,5] y) {
      m = MatMul(x, w)
      y = Loop(count, , b)<body = step (int64 i, bool c, float[N,5] s) => (bool d, float[N,5] t) {
        d = Identity(c)\n t = Add(m, s)
      }>
    }""", WEIGHTS | {"b": torch.zeros(1, 5)})  # fmt: skip
    assert not fuse_gemm(program).modified


COLUMNS = {"w": torch.randn(3, 5), "c": torch.randn(5)}
SHAPES = "<int64[2] s = {-1,3}, int64[3] t = {0,4,5}, int64[3] u = {-1,4,5}, int64[3] v = {-1,2,5}>"


@pytest.mark.parametrize(("gemm", "operators"), [("Gemm(a, w, c)", ["MatMul", "Add"]), ("Gemm(a, w)", ["MatMul"])])
def test_unfolded(gemm: str, operators: list[str]) -> None:
    """Two Reshapes less."""
    program = model(f"g (float[N,4,3] x) => (float[N,4,5] y) {SHAPES} {{ a = Reshape(x, s)\n b = {gemm}\n"
                    "y = Reshape(b, u) }", COLUMNS)  # fmt: skip
    check(program, batch_gemm, [torch.randn(2, 4, 3)], operators)
    assert origins(program, "y") == {"%a", "%b", "%y"}


@pytest.mark.parametrize(
    "body", ["b = Gemm<alpha=2.0>(a, w, c)\n y = Reshape(b, u)", "b = Gemm(a, w, c)\n y = Reshape(b, v)"]
)
def test_not_unfolded(body: str) -> None:
    """A factor alpha, and a Reshape to other leading axes."""
    program = model(f"g (float[N,4,3] x) => (float[M,K,5] y) {SHAPES} {{ a = Reshape(x, s)\n {body} }}", COLUMNS)
    assert not batch_gemm(program).modified
