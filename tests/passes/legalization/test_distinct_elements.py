"""Unique of a vector by sorting it."""

import math

import pytest
import torch
from onnx.reference import ReferenceEvaluator

from fx_onnx.passes.legalization.distinct_elements import LegalizeUnique
from tests.passes.checking import check_equal, model
from tests.targets.exporting import exported, operators

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
    check_equal(program, LegalizeUnique(), [torch.tensor(numbers)])
    found = [node.op_type for node in program.graph]
    assert "Unique" not in found
    assert ("CumSum" in found, found.count("TopK")) == (("inverse" in read), 1 + ("inverse" in read))


def test_integers_beyond_the_precision_of_float64() -> None:
    x = torch.tensor([2**53 + 1, 2**53, -(2**62), 2**53 + 1, 2**63 - 1])
    check_equal(model(unique("int64", *RESULTS)), LegalizeUnique(), [x])


@pytest.mark.parametrize("attributes", ["", "<axis=0>", "<axis=-1>"])
def test_vectors_and_flattened_tensors(attributes: str) -> None:
    shape, sizes = ("N", (7,)) if attributes else ("A,B,C", (3, 1, 4))
    x = torch.randint(-2, 3, sizes)
    check_equal(model(unique("int64", *RESULTS, shape=shape, attributes=attributes)), LegalizeUnique(), [x])


def test_a_scalar() -> None:
    program = exported(
        lambda x: x.sum().unique(return_inverse=True, return_counts=True), torch.ones(3), target="directml"
    )
    assert "Unique" not in operators(program)
    assert [each.tolist() for each in program(torch.ones(3))] == [[3.0], 0, [1]]


@pytest.mark.parametrize("numbers", [[], [True], [True, False, True]])
def test_booleans(numbers: list[bool]) -> None:
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
def test_declined(attributes: str) -> None:
    """Slices along an axis, and the order of the first occurrences."""
    text = f"g (float[A,B] x) => (float[M,B] y) {{ y = Unique{attributes}(x) }}"
    assert not LegalizeUnique()(model(text)).modified
