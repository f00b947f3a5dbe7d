"""Ranges, slices, sorts and distinct elements."""

import math

import onnx
import onnx_ir as ir
import pytest
import torch
from onnx.reference import ReferenceEvaluator

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.backends.legalization.ranges_and_slices import (
    legalize_ranges,
    legalize_reversed_empty_axes,
    legalize_slices_from_the_end,
    legalize_unique,
)
from fx_onnx.passes.matchers import constant_integers
from tests.exporting import exported, operators
from tests.passes.checking import check, check_equal, model


def test_the_positions_of_a_sequence() -> None:
    """A size is not negative."""
    text = """g (float[N,M] x) => (int64[N] y) <int64[1] axis = {0}, int64 zero = {0}, int64 one = {1}> {
      shape = Shape<start=0, end=1>(x)\n n = Squeeze(shape, axis)\n y = Range(zero, n, one)
    }"""
    expected = ["Shape", "Squeeze", "Unsqueeze", "Expand", "CumSum"]
    check(model(text), legalize_ranges, [torch.ones(5, 2)], expected)


def test_a_limit_that_is_the_size_of_the_result() -> None:
    """There is no Max, which would hide the size: a size is not negative, however it is computed."""
    text = """g (float[N,M] x) => (int64[K] y) <int64[1] axis = {0}, int64 zero = {0}, int64 one = {1}> {
      shape = Shape<start=0, end=1>(x)\n n = Squeeze(shape, axis)\n k = Sub(n, one)\n y = Range(zero, k, one)
    }"""
    expected = ["Shape", "Squeeze", "Sub", "Unsqueeze", "Expand", "CumSum"]
    check(model(text), legalize_ranges, [torch.ones(5, 2)], expected)


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize(("start", "limit"), [(0, 7), (3, 7), (7, 3), (-2, 4), (4, 4), (6, -3)])
@pytest.mark.parametrize("step", [1, 2, 3, -1, -4])
def test_a_range_of_any_bounds(start: int, limit: int, step: int, dtype: str) -> None:
    text = f"g ({dtype} a, {dtype} b) => ({dtype}[N] y) <{dtype} step = {{{step}}}> {{ y = Range(a, b, step) }}"
    bounds = [torch.tensor(each, dtype=getattr(torch, dtype)) for each in (start, limit)]
    program = check_equal(model(text), legalize_ranges, bounds)
    assert "Range" not in [node.op_type for node in program.graph]


def test_ranges_that_stay() -> None:
    """A step that is not known, and floats."""
    integers = "g (int64 a, int64 b, int64 c) => (int64[N] y) { y = Range(a, b, c) }"
    check(model(integers), legalize_ranges, [torch.tensor(1), torch.tensor(7), torch.tensor(2)], ["Range"])
    floats = "g (float a, float b) => (float[N] y) <float step = {0.5}> { y = Range(a, b, step) }"
    check(model(floats), legalize_ranges, [torch.tensor(1.0), torch.tensor(3.0)], ["Range"])


LAST = 2**63 - 1

CLIP = ["Shape", "Add", "Max"]


def sliced(starts: list[int], ends: list[int], axes: list[int], steps: list[int]) -> str:
    constants = ", ".join(
        f"int64[{len(axes)}] {name} = {{{', '.join(map(str, numbers))}}}"
        for name, numbers in (("a", starts), ("b", ends), ("c", axes), ("d", steps))
    )
    return f"g (float[N,M,6] x) => (float[R,S,T] y) <{constants}> {{ y = Slice(x, a, b, c, d) }}"


@pytest.mark.parametrize("rows", [13, 5, 8])
@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [
        (-8, LAST, 1, CLIP),
        (-8, LAST, 3, CLIP),
        (0, -2, 1, CLIP),
        (-8, -2, 1, [*CLIP, *CLIP]),
        (-1, LAST, 1, []),
        (0, -1, 1, []),
        (2, LAST, 1, []),
        (-1, -(2**63), -1, []),
    ],
)
def test_a_slice_of_one_axis(start: int, end: int, step: int, expected: list[str], rows: int) -> None:
    """The size is larger than k, smaller and equal."""
    program = model(sliced([start], [end], [0], [step]))
    check(program, legalize_slices_from_the_end, [torch.randn(rows, 4, 6)], ["Slice", *expected])


def test_a_slice_of_several_axes() -> None:
    """A static axis keeps its number unless the number is before its begin."""
    program = model(sliced([-3, 1, -9], [LAST, LAST, -2], [1, 0, -1], [1, 1, 1]))
    check(program, legalize_slices_from_the_end, [torch.randn(3, 2, 6)], ["Slice", "Concat", *CLIP])


RESULTS = {"y": "float[M] y", "first": "int64[M] first", "inverse": "int64[P] inverse", "counts": "int64[M] counts"}


def unique(dtype: str, *read: str, shape: str = "N", attributes: str = "") -> str:
    """Returns a graph that returns some of the results of Unique."""
    results = ", ".join(RESULTS[name].replace("float", dtype) for name in read)
    return f"g ({dtype}[{shape}] x) => ({results}) {{ y, first, inverse, counts = Unique{attributes}(x) }}"


@pytest.mark.parametrize("read", [[*RESULTS], *([name] for name in RESULTS)])
@pytest.mark.parametrize(
    "numbers", [[], [3.0], [2.0, 2.0, 2.0], [4.0, -1.0, 4.0, math.inf, -0.0, 0.0, -math.inf, -1.0]]
)
def test_each_result(read: list[str], numbers: list[float]) -> None:
    """Of no element, one, equal ones and several; only what is read is computed."""
    program = model(unique("float", *read))
    check_equal(program, legalize_unique, [torch.tensor(numbers)])
    found = [node.op_type for node in program.graph]
    assert "Unique" not in found
    assert ("CumSum" in found, found.count("TopK")) == (("inverse" in read), 1 + ("inverse" in read))


def test_integers_beyond_the_precision_of_float64() -> None:
    x = torch.tensor([2**53 + 1, 2**53, -(2**62), 2**53 + 1, 2**63 - 1])
    check_equal(model(unique("int64", *RESULTS)), legalize_unique, [x])


@pytest.mark.parametrize("attributes", ["", "<axis=0>", "<axis=-1>"])
def test_vectors_and_flattened_tensors(attributes: str) -> None:
    shape, sizes = ("N", (7,)) if attributes else ("A,B,C", (3, 1, 4))
    x = torch.randint(-2, 3, sizes)
    check_equal(model(unique("int64", *RESULTS, shape=shape, attributes=attributes)), legalize_unique, [x])


def test_unique_of_a_scalar() -> None:
    program = exported(
        lambda x: x.sum().unique(return_inverse=True, return_counts=True), torch.ones(3), target="directml"
    )
    assert "Unique" not in operators(program)
    assert [each.tolist() for each in program(torch.ones(3))] == [[3.0], 0, [1]]


@pytest.mark.parametrize("numbers", [[], [True], [True, False, True]])
def test_unique_of_booleans(numbers: list[bool]) -> None:
    x = torch.tensor(numbers, dtype=torch.bool)
    program = exported(lambda x: x.unique(return_inverse=True), x, target="directml", dynamic_shapes=({0: "n"},))
    assert "Unique" not in operators(program)
    assert all(map(torch.equal, program(x), x.unique(return_inverse=True)))


@pytest.mark.parametrize("numbers", [[math.nan, 1.0, math.nan, 0.0, 1.0], [math.nan], [math.nan, math.nan]])
def test_each_nan_is_distinct(numbers: list[float]) -> None:
    """As in torch. The reference evaluator sorts NaN behind all numbers, as CUDA does; ONNX Runtime's CPU does not."""
    x = torch.tensor(numbers)
    want = x.unique(return_inverse=True, return_counts=True)
    program = exported(lambda x: x.unique(return_inverse=True, return_counts=True), x, target="directml")
    found = ReferenceEvaluator(program.model_proto).run(None, {"x": x.numpy()})
    assert [torch.from_numpy(each).shape for each in found] == [each.shape for each in want]
    for each, expected in zip(found, want, strict=True):
        torch.testing.assert_close(torch.from_numpy(each), expected, equal_nan=True)


@pytest.mark.parametrize("attributes", ["<axis=0>", "<sorted=0>"])
def test_unique_that_stays(attributes: str) -> None:
    """Slices along an axis, and the order of the first occurrences."""
    text = f"g (float[A,B] x) => (float[M,B] y) {{ y = Unique{attributes}(x) }}"
    assert not legalize_unique(model(text)).modified


def test_a_sliced_axis_has_another_name_than_the_whole_axis() -> None:
    """ONNX's shape inference for Slice of opset 10 says that it has the same size."""
    text = """(float[N,4] x) => (float[A,4] z) <int64[1] s = {0}, int64[1] e = {1}, int64[1] a = {0}> {
      y = Slice(x, s, e, a)\n z = Relu(y)
    }"""
    program = model(f"g {text}", opset=11)
    program.graph[0].outputs[0].shape = None
    OpsetStep(10)(program)
    inferred = onnx.shape_inference.infer_shapes(ir.serde.serialize_model(program), data_prop=True)
    (y,) = [value for value in inferred.graph.value_info if value.name == "y"]
    assert y.type.tensor_type.shape.dim[0].dim_param not in ("", "N")


X = torch.randn(2, 5, 7)

BOUNDS = [torch.tensor(bounds) for bounds in ([1, -3], [4, 100], [-100, -1], [5, 2])]


@pytest.mark.parametrize("steps", ["1,1", "2,1", "-1,3", "-2,-3"])
def test_slices_by_bounds_of_the_run(steps: str) -> None:
    """Bounds beyond the ends, from the end, and in the wrong order; constant bounds with other steps than 1."""
    text = f"""(float[A,B,C] x, int64[2] s, int64[2] e) => (float[A,D,E] y)
    <int64[2] a = {{1,2}}, int64[2] t = {{{steps}}}>
    {{ y = Slice(x, s, e, a, t) }}"""
    for starts in BOUNDS:
        for ends in (*BOUNDS, torch.tensor([-100, -100])):
            check_equal(model(f"g {text}", opset=10), OpsetStep(9), [X, starts, ends])


def test_a_slice_with_a_constant_step() -> None:
    """The flip of an axis of static size needs no computation of indices."""
    text = """(float[2,5,7] x) => (float[2,5,7] y)
    <int64[1] s = {-1}, int64[1] e = {-9223372036854775808}, int64[1] a = {2}, int64[1] t = {-1}>
    { y = Slice(x, s, e, a, t) }"""
    check(model(f"g {text}", opset=10), OpsetStep(9), [X], ["Gather"])


@pytest.mark.parametrize(
    ("sizes", "axes", "left"), [([5, 0, 7], [1], None), ([5, 0, 7], [1, 2], [2]), ([0, 2, 7], [1, -1], [1, -1])]
)
def test_a_reversed_axis_without_elements(sizes: list[int], axes: list[int], left: list[int] | None) -> None:
    """TensorRT starts before its first element; the other axes are reversed."""
    ones = ", ".join(["-1"] * len(axes))
    ends = ", ".join([str(-(2**63))] * len(axes))
    text = f"""g (float{sizes} x) => (float{sizes} y) <int64[K] s = {{{ones}}}, int64[K] e = {{{ends}}},
      int64[K] a = {{{str(axes)[1:-1]}}}> {{ y = Slice(x, s, e, a, s) }}""".replace("[K]", f"[{len(axes)}]")
    program = check(model(text), legalize_reversed_empty_axes, [torch.randn(sizes)], ["Slice" if left else "Identity"])
    assert left is None or constant_integers(program.graph[0].inputs[3]) == left
