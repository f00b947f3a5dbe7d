"""Reductions and scatters as other reductions."""

import math

import pytest
import torch

from fx_onnx.backends.legalization.reductions import (
    legalize_marks,
    legalize_reductions,
    legalize_scalar_reductions,
    legalize_scatter_reductions,
    legalize_scatters,
)
from tests.exporting import exported, operators
from tests.passes.checking import check, check_equal, model

# ---------------------------------------------------------------- norms and logarithms of sums as ReduceSum

X = torch.tensor([[1.5, -2.0, 0.25], [100.0, 99.0, 0.5]])


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("ReduceL1", ["Abs", "ReduceSum"]),
        ("ReduceL2", ["Mul", "ReduceSum", "Sqrt"]),
        ("ReduceSumSquare", ["Mul", "ReduceSum"]),
    ],
)
def test_definitions(operator: str, expected: list[str], keepdims: int) -> None:
    text = f"g (float[M,N] x) => (float[] y) <int64[1] a = {{1}}> {{ y = {operator}<keepdims={keepdims}>(x, a) }}"
    check(model(text, opset=18), legalize_reductions, [X], expected)


def test_a_logarithm_of_a_sum() -> None:
    text = "g (float[M,N] x) => (float[] y) <int64[1] a = {1}> { y = ReduceLogSum(x, a) }"
    check(model(text, opset=18), legalize_reductions, [X.abs()], ["ReduceSum", "Log"])


@pytest.mark.parametrize("keepdims", [0, 1])
def test_exponentials_do_not_overflow(keepdims: int) -> None:
    text = f"g (float[M,N] x) => (float[] y) <int64[1] a = {{1}}> {{ y = ReduceLogSumExp<keepdims={keepdims}>(x, a) }}"
    expected = ["ReduceMax", "Clip", "Sub", "Exp", "ReduceSum", "Log", "Add"] + ["ReduceMax"] * (not keepdims)
    check(model(text, opset=18), legalize_reductions, [X], expected)


def test_infinity() -> None:
    text = "g (float[M,N] x) => (float[] y) <int64[1] a = {1}> { y = ReduceLogSumExp(x, a) }"
    changed = model(text, opset=18)
    infinity = float("inf")
    x = torch.tensor([[-infinity, -infinity], [infinity, 0.0], [-infinity, 1.0]])
    expected = ["ReduceMax", "Clip", "Sub", "Exp", "ReduceSum", "Log", "Add"]
    check(changed, legalize_reductions, [x], expected)


def test_all_axes_and_integers_stay() -> None:
    check(model("g (float[M,N] x) => (float[] y) { y = ReduceL2(x) }"), legalize_reductions, [X], ["ReduceL2"])
    text = "g (int32[M,N] x) => (int32[] y) <int64[1] a = {1}> { y = ReduceL1(x, a) }"
    check(model(text), legalize_reductions, [torch.tensor([[1, -2]], dtype=torch.int32)], ["ReduceL1"])


# ---------------------------------------------------------------- means of squares


def test_a_square_of_float16_is_a_product_for_cuda() -> None:
    """The CUDA provider computes it without Casts."""
    norm = lambda x: x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)  # noqa: E731
    program = exported(norm, torch.randn(2, 8, dtype=torch.float16), target="onnxruntime-cuda")
    assert operators(program) == ["Mul", "ReduceMean", "Add", "Sqrt", "Div"]


# ---------------------------------------------------------------- scatters that combine elements as reductions

TABLE = torch.tensor([[1.0, -2.0], [0.5, 4.0], [3.0, 0.0]])

UPDATES = torch.tensor([[2.0, 1.0], [-3.0, 8.0], [0.25, 5.0], [7.0, -1.0]])

PLACES = torch.tensor([[2], [0], [2], [-1]])

REDUCTION = {"add": "ReduceSum", "mul": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}

MASK = ["Shape", "Squeeze", "Range", "Unsqueeze", "Greater", "Add", "Where", "Equal", "Where", "Unsqueeze", "Concat"]


@pytest.mark.parametrize("reduction", REDUCTION)
def test_rows(reduction: str) -> None:
    """Two updates of one row are combined, a negative index counts from the end, and a row without updates stays."""
    scatter = f'ScatterND<reduction="{reduction}">(x, i, u)'
    text = f"g (float[M,2] x, int64[E,1] i, float[E,2] u) => (float[M,2] y) {{ y = {scatter} }}"
    expected = [*MASK, "Squeeze", "Unsqueeze", REDUCTION[reduction]]
    check(model(text, opset=18), legalize_scatter_reductions, [TABLE, PLACES, UPDATES], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("reduction", REDUCTION)
def test_elements_of_a_vector(reduction: str, dtype: torch.dtype) -> None:
    name = "float" if dtype == torch.float32 else "int64"
    scatter = f'ScatterElements<reduction="{reduction}">(x, i, u)'
    text = f"g ({name}[M] x, int64[E] i, {name}[E] u) => ({name}[M] y) {{ y = {scatter} }}"
    inputs = [TABLE[:, 1].to(dtype), PLACES[:, 0], UPDATES[:, 0].to(dtype)]
    check(model(text, opset=18), legalize_scatter_reductions, inputs, [*MASK, REDUCTION[reduction]])


def test_a_place_of_several_axes_stays() -> None:
    text = 'g (float[M,N] x, int64[E,2] i, float[E] u) => (float[M,N] y) { y = ScatterND<reduction="add">(x, i, u) }'
    inputs = [TABLE, torch.tensor([[0, 1], [0, 1]]), torch.tensor([1.0, 2.0])]
    check(model(text, opset=18), legalize_scatter_reductions, inputs, ["ScatterND"])


def test_overwriting_stays() -> None:
    text = "g (float[M,2] x, int64[E,1] i, float[E,2] u) => (float[M,2] y) { y = ScatterND(x, i, u) }"
    check(model(text, opset=18), legalize_scatter_reductions, [TABLE, PLACES[:2], UPDATES[:2]], ["ScatterND"])


# ---------------------------------------------------------------- TensorRT


@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceMax", "ReduceL2", "ReduceLogSumExp"])
def test_a_reduction_of_one_number(operator: str) -> None:
    text = f"g (float x) => (float y) {{ y = {operator}<keepdims=0>(x) }}"
    check(model(text, opset=18), legalize_scalar_reductions, [torch.tensor(-2.0)], ["Reshape", operator])


@pytest.mark.parametrize("shape", [[], [2, 3]])
@pytest.mark.parametrize(
    ("settings", "moved"), [("keepdims=0", ["Reshape"]), ("keepdims=0, noop_with_empty_axes=1", [])]
)
def test_a_reduction_of_unknown_axes(settings: str, moved: list[str], shape: list[int]) -> None:
    """As in the body of a Loop, whose carried values have no shapes."""
    text = f"""g (float[M,N] x, int64[K] s) => (float[L] y) <int64[1] one = {{-1}}> {{
      r = Reshape(x, s)\n z = ReduceSum<{settings}>(r)\n y = Reshape(z, one)
    }}"""
    inputs = [torch.randn(math.prod(shape), 1), torch.tensor(shape, dtype=torch.int64)]
    check(model(text, opset=18), legalize_scalar_reductions, inputs, ["Reshape", *moved, "ReduceSum", "Reshape"])


def test_a_reduction_of_axes_stays() -> None:
    check(model("g (float[M,N] x) => (float[] y) { y = ReduceSum(x) }"), legalize_scalar_reductions, [X], ["ReduceSum"])


@pytest.mark.parametrize(("reduction", "reduced"), [("add", "Sum"), ("mul", "Prod"), ("max", "Max"), ("min", "Min")])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_along_an_axis(reduction: str, reduced: str, axis: int) -> None:
    shape = "4,3" if axis == 0 else "2,5"
    text = f"""g (float[2,3] x, int64[{shape}] i, float[{shape}] u) => (float[2,3] y) {{
      y = ScatterElements<axis={axis}, reduction="{reduction}">(x, i, u) }}"""
    torch.manual_seed(0)
    sizes = tuple(map(int, shape.split(",")))
    inputs = [X, torch.randint(-2, 2, sizes), torch.randn(sizes)]
    changed = model(text, opset=18)
    check_equal(changed, legalize_scatters, inputs)
    assert {"ScatterElements"}.isdisjoint(node.op_type for node in changed.graph)
    assert changed.graph[-1].op_type == f"Reduce{reduced}"


def test_rows_of_several_axes() -> None:
    text = """g (float[2,3,2] x, int64[4,2] i, float[4,2] u) => (float[2,3,2] y) {
      y = ScatterND<reduction="add">(x, i, u) }"""
    inputs = [torch.zeros(2, 3, 2), torch.tensor([[0, 1], [0, 1], [1, 2], [-1, -1]]), torch.randn(4, 2)]
    changed = model(text, opset=18)
    check_equal(changed, legalize_scatters, inputs)
    assert "ScatterND" not in [node.op_type for node in changed.graph]


def test_infinite_updates_reach_their_element_only() -> None:
    text = """g (float[3] x, int64[2] i, float[2] u) => (float[3] y) {
      y = ScatterElements<reduction="add">(x, i, u) }"""
    inputs = [torch.zeros(3), torch.tensor([1, 1]), torch.tensor([float("inf"), 1.0])]
    check_equal(model(text, opset=18), legalize_scatters, inputs)


@pytest.mark.parametrize(
    "node", ['ScatterElements<axis=0>(x, i, u)', 'ScatterElements<axis=0, reduction="add">(x, j, v)']
)  # fmt: skip
def test_scatters_that_stay(node: str) -> None:
    """One has no reduction, and the updates of the other one are narrower than the tensor."""
    text = (
        f"g (float[2,3] x, int64[2,3] i, float[2,3] u, int64[2,1] j, float[2,1] v) => (float[2,3] y) {{ y = {node} }}"
    )
    assert not legalize_scatters(model(text, opset=18)).modified


def test_one_number_at_many_places() -> None:
    text = """g (float[N] x, int64[M] i, int64[1] s) => (float[N] y) <float c = {-7.0}> {
      u = Expand(c, s)\n y = ScatterElements<axis=0>(x, i, u) }"""
    program = model(text)
    check_equal(program, legalize_marks, [torch.randn(4), torch.tensor([1, -1, 1]), torch.tensor([3])])
    assert "ScatterElements" not in [node.op_type for node in program.graph]


@pytest.mark.parametrize(("length", "changes"), [(3, False), (6, True)])
def test_one_number_at_fewer_places_than_there_are_elements_stays(length: int, changes: bool) -> None:
    text = f"""g (float[4] x, int64[{length}] i) => (float[4] y) <float c = {{-7.0}}, int64[1] s = {{{length}}}> {{
      u = Expand(c, s)\n y = ScatterElements<axis=0>(x, i, u) }}"""
    program = model(text)
    assert legalize_marks(program).modified is changes
