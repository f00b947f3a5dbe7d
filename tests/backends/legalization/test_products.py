"""Products of matrices in the forms that runtimes compute rightly."""

import pytest
import torch

import fx_onnx
from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.backends.legalization.products import (
    legalize_gemm_bias,
    legalize_integer_products,
    legalize_labels,
    legalize_products_of_integers,
    legalize_repeated_constants,
    legalize_unsigned_products,
)
from fx_onnx.targets.kernel_support import support
from fx_onnx.targets.known_targets import find_target
from tests.compare import assert_close
from tests.modules import FunctionModule
from tests.passes.checking import check, check_equal, model

# ---------------------------------------------------------------- products of a matrix and a vector


def test_a_dynamic_matrix() -> None:
    shapes = (({0: "n", 1: "m"}, {0: "n"}),)
    module, args = FunctionModule(lambda x, v: x.t() @ v).eval(), (torch.randn(5, 4), torch.randn(5))
    program = fx_onnx.export(module, args, dynamic_shapes=shapes, opset_version=13)
    for n, m in ((5, 4), (7, 1), (1, 3), (2, 9)):
        args = torch.randn(n, m), torch.randn(n)
        assert_close(program(*args), args[0].t() @ args[1])


# ---------------------------------------------------------------- the bias of a Gemm in float16 as an Add

X, W, B = torch.tensor([[1.0, 2.0], [0.5, -4.0]]), torch.tensor([[3.0, 1.0], [2.0, 0.25]]), torch.tensor([1.0, -1.0])


def gemm(dtype: str, attributes: str = "") -> str:
    graph = f"g ({dtype}[M,2] x, {dtype}[2,2] w, {dtype}[2] b) => ({dtype}[M,2] y)"
    return f"{graph} {{ y = Gemm<transB=1{attributes}>(x, w, b) }}"


def test_a_gemm_of_float16() -> None:
    changed = check(model(gemm("float16")), legalize_gemm_bias, [X.half(), W.half(), B.half()], ["Gemm", "Add"])
    assert changed.graph.node(0).attributes["transB"].as_int() == 1


def test_a_gemm_with_a_factor_and_of_float32_stay() -> None:
    inputs = [X.half(), W.half(), B.half()]
    check(model(gemm("float16", ", beta=0.5")), legalize_gemm_bias, inputs, ["Gemm"])
    check(model(gemm("float")), legalize_gemm_bias, [X, W, B], ["Gemm"])


# ---------------------------------------------------------------- products of integers


@pytest.mark.parametrize(
    ("length", "expected"),
    [(258, ["Cast", "Cast", "MatMul", "Cast"]), (600, [*["Cast"] * 5, *["Slice"] * 6, *["MatMul"] * 3, "Add", "Add"])],
)
def test_integer_products_are_exact(length: int, expected: list[str]) -> None:
    """The largest sums are exact, which one float32 product of the longer rows would not be."""
    weight = torch.full((length, 2), 255, dtype=torch.uint8)  # of uint8, whose sums ONNX Runtime does not saturate
    weight[:, 1] = 254
    weight[0] = 1
    text = f"g (uint8[N,{length}] x) => (int32[N,2] y) {{ y = MatMulInteger(x, w) }}"
    x = torch.full((3, length), 255, dtype=torch.uint8)
    check(model(text, {"w": weight}), legalize_integer_products, [x], expected, tolerance=0)


def test_zero_points_and_dynamic_rows_stay() -> None:
    """A zero point, and rows of a dynamic length."""
    text = "g (uint8[N,4] x, uint8 z) => (int32[N,2] y) { y = MatMulInteger(x, w, z) }"
    assert not legalize_integer_products(model(text, {"w": torch.ones(4, 2, dtype=torch.int8)})).modified
    text = "g (uint8[N,K] x, int8[K,2] w) => (int32[N,2] y) { y = MatMulInteger(x, w) }"
    assert not legalize_integer_products(model(text)).modified


# ---------------------------------------------------------------- products of uint8 as products of int8


@pytest.mark.parametrize("batch", [(), (2,)])
def test_products_of_int8(batch: tuple[int, ...]) -> None:
    """Also of matrices with a batch. The CUDA provider has kernels for all nodes afterwards."""
    rows = "".join(f"{size}," for size in batch)
    text = f"g (uint8[{rows}M,4] a, int8[{rows}4,3] b) => (int32[{rows}M,3] y) {{ y = MatMulInteger(a, b) }}"
    program = model(text)
    assert [each.operator for each in support(program, find_target("onnxruntime-cuda")).missing] == ["MatMulInteger"]
    # ONNX Runtime saturates sums of two products of uint8 and int8 at 16 bits on x64 processors without VNNI.
    a, b = torch.randint(0, 256, (*batch, 5, 4), dtype=torch.uint8), torch.randint(-64, 64, (*batch, 4, 3))
    check_equal(program, legalize_unsigned_products, [a, b.to(torch.int8)])
    assert not support(program, find_target("onnxruntime-cuda")).missing


@pytest.mark.parametrize(("a", "b", "zero"), [("int8", "int8", ""), ("uint8", "uint8", ""), ("uint8", "int8", ", z")])
def test_other_integer_products_stay(a: str, b: str, zero: str) -> None:
    """Products of int8, weights of uint8, and zero points."""
    text = f"g ({a}[M,4] a, {b}[4,3] b) => (int32[M,3] y) <{a} z = {{3}}> {{ y = MatMulInteger(a, b{zero}) }}"
    assert not legalize_unsigned_products(model(text)).modified


# ---------------------------------------------------------------- products of a repeated constant

TEXT = """g (float[N] x) => (float[N,M,2] y) <int64[2] ones = {{{rows}, {last}}}, float[N,4,3] t> {{
  n = Shape(x)\n r = Concat<axis=0>(n, ones)\n t = {operator}(c, r)\n {rest}
}}"""

TRANSPOSED = "u = Transpose<perm=[1,0,2]>(t)\n v = MatMul(u, w)\n y = Transpose<perm=[1,0,2]>(v)"


@pytest.mark.parametrize(("operator", "rows", "last"), [("Tile", 1, 1), ("Expand", 4, 3)])
@pytest.mark.parametrize("rest", ["y = MatMul(t, w)", TRANSPOSED])
def test_product_before_the_repetition(operator: str, rows: int, last: int, rest: str) -> None:
    """The product, and a Transpose before it, read constants."""
    text = TEXT.format(operator=operator, rows=rows, last=last, rest=rest)
    program = model(text, {"c": torch.randn(1, 4, 3), "w": torch.randn(3, 2)})
    check_equal(program, legalize_repeated_constants, [torch.zeros(5)])
    operators = [node.op_type for node in program.graph]
    assert operators.index("MatMul") < operators.index(operator)


def test_a_repeated_last_axis_stays() -> None:
    text = TEXT.format(operator="Tile", rows=1, last=2, rest="y = MatMul(t, w)").replace("4,3]", "4,6]")
    program = model(text, {"c": torch.randn(1, 4, 3), "w": torch.randn(6, 2)})
    assert not legalize_repeated_constants(program).modified


# ---------------------------------------------------------------- products of several operands


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("aa->a", [(3, 3)]),
        ("baa,b->", [(2, 3, 3), (2,)]),
        ("abab->ba", [(2, 3, 2, 3)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (2, 5, 4, 2)]),
        ("...ij,jk->...ik", [(2, 5, 3, 4), (4, 2)]),
        ("i...,i...->...", [(2, 3), (2, 3)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("b...a,...a", [(2, 3, 4), (3, 4)]),
    ],
)
def test_einsum_with_ellipses_and_diagonals(equation: str, shapes: list[tuple[int, ...]]) -> None:
    names = "xz"[: len(shapes)]
    inputs = ", ".join(f"float[{','.join(map(str, s))}] {name}" for name, s in zip(names, shapes, strict=True))
    given = [torch.randn(shape) for shape in shapes]
    rank = torch.einsum(equation, *given).dim()
    result = f"float[{','.join('ABCD'[:rank])}]" if rank else "float"
    text = f'g ({inputs}) => ({result} y) {{ y = Einsum<equation="{equation}">({", ".join(names)}) }}'
    check_equal(model(text, opset=12), OpsetStep(11), given)


# ---------------------------------------------------------------- TensorRT


@pytest.mark.parametrize("equation", ["abC,Cd->abd", "AbB,Bd->bAd"])
def test_labels_become_small(equation: str) -> None:
    text = f'g (float[2,3,4] x, float[4,2] z) => (float[] y) {{ y = Einsum<equation="{equation}">(x, z) }}'
    program = model(text)
    check(program, legalize_labels, [torch.randn(2, 3, 4), torch.randn(4, 2)], ["Einsum"])
    assert program.graph[0].attributes["equation"].as_string().islower()


def test_labels_that_order_the_result_stay() -> None:
    text = 'g (float[2,3] x, float[3,2] z) => (float[] y) { y = Einsum<equation="aB,Bc">(x, z) }'
    assert not legalize_labels(model(text)).modified


@pytest.mark.parametrize(
    ("left", "right"), [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((4,), (4, 5)), ((2, 3, 4), (4,)), ((4,), (4,))]
)
def test_a_product_of_integers_is_a_sum(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    sizes = [",".join(map(str, shape)) for shape in (left, right)]
    text = f"g (int64[{sizes[0]}] x, int64[{sizes[1]}] z) => (int64[] y) {{ y = MatMul(x, z) }}"
    inputs = [torch.randint(-(2**40), 2**40, left), torch.randint(-9, 9, right)]
    expected = ["Unsqueeze", "Unsqueeze", "Mul", "ReduceSum"] + ["Squeeze"] * (1 in (len(left), len(right)))
    check(model(text), legalize_products_of_integers, inputs, expected)
