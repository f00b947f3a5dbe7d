"""The helpers of translations: constants, casts, promotion, and shapes that are constants wherever possible."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx_ir import DataType

from tests.translation.emitters import constants, emitter, kinds, symbolic_sizes, value


@pytest.fixture(scope="module")
def sizes() -> tuple[torch.SymInt, torch.SymInt]:
    return symbolic_sizes()


# ---------------------------------------------------------------- constants


def test_constants_are_deduplicated_by_dtype_shape_and_bytes() -> None:
    op = emitter()
    assert op.constant(1) is op.constant(1)
    assert op.constant(1) is not op.constant([1])
    assert op.constant(1) is not op.constant(1.0)
    assert op.constant(1.0) is not op.constant(1.0, torch.float16)
    assert op.constant(0.0) is not op.constant(-0.0)
    assert op.constant(float("nan")) is op.constant(float("nan"))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.bool, torch.uint8])
def test_constants_of_a_dtype(kind: torch.dtype) -> None:
    held = emitter().constant([1, 0], kind).const_value
    assert held is not None
    assert held.numpy().astype(np.float64).tolist() == [1.0, 0.0]
    assert torch.empty(0, dtype=kind).dtype == kind


def test_default_dtypes_of_constants() -> None:
    op = emitter()
    assert [op.constant(v).dtype for v in (True, 2, 2.5, [1, 2], np.float64(1.0) * np.ones(2))] == [
        DataType.BOOL,
        DataType.INT64,
        DataType.FLOAT,
        DataType.INT64,
        DataType.DOUBLE,
    ]


# ---------------------------------------------------------------- casts and promotion


def test_cast_only_where_needed() -> None:
    op = emitter()
    x = value(op, DataType.FLOAT, 2)
    assert op.cast(x, torch.float32) is x
    assert op.cast(x, DataType.INT64).dtype is DataType.INT64
    assert op.sizes(op.cast(x, torch.int64)) == (2,)
    assert kinds(op) == ["Cast", "Cast"]
    assert op.cast(2.7, torch.int64).const_value.numpy() == 2


def test_promote_follows_torch() -> None:
    op = emitter()
    ints, floats = value(op, DataType.INT64, 2, name="i"), value(op, DataType.FLOAT16, 2, name="f")
    scalar = value(op, DataType.DOUBLE, name="s")
    assert {v.dtype for v in op.promote(ints, floats)} == {DataType.FLOAT16}
    assert {v.dtype for v in op.promote(floats, scalar)} == {DataType.FLOAT16}
    assert {v.dtype for v in op.promote(ints, 2.5)} == {DataType.FLOAT}
    assert {v.dtype for v in op.promote(ints, 2)} == {DataType.INT64}
    assert {v.dtype for v in op.promote(ints, 2, dtype=torch.float64)} == {DataType.DOUBLE}
    assert op.result_type(floats, True) == torch.float16


# ---------------------------------------------------------------- shapes


def test_known_sizes_are_a_constant(sizes: tuple[torch.SymInt, torch.SymInt]) -> None:
    op = emitter()
    op.shape([2, 3])
    assert kinds(op) == []
    assert constants(op) == [(DataType.INT64, [2, 3])]


def test_symbolic_sizes_are_read_once(sizes: tuple[torch.SymInt, torch.SymInt]) -> None:
    op = emitter()
    value(op, DataType.FLOAT, *sizes)
    op.shape([sizes[0], 2, 3, sizes[1]])
    op.shape([sizes[0], sizes[1]])
    assert kinds(op) == ["Shape", "Shape", "Concat", "Concat"]


@pytest.mark.parametrize(
    ("make", "want"),
    [
        (lambda a, b: ((a, 4, b), (a, b * 4)), [0, -1]),
        (lambda a, b: ((a, 20), (a, 2, 10)), [-1, 2, 10]),
    ],
)
def test_the_shape_of_a_reshape_is_constant_if_onnx_can_express_it(sizes, make, want) -> None:
    old, new = make(*sizes)
    op = emitter()
    result = op.reshape(value(op, DataType.FLOAT, *old), new)
    assert op.sizes(result) == new
    assert kinds(op) == ["Reshape"]
    assert constants(op) == [(DataType.INT64, want)]


def test_reshape_to_two_unknown_sizes_reads_them(sizes: tuple[torch.SymInt, torch.SymInt]) -> None:
    a, b = sizes
    op = emitter()
    x = value(op, DataType.FLOAT, a * b)
    value(op, DataType.FLOAT, a, b, name="y")
    op.reshape(x, [a, b])
    assert kinds(op)[-1] == "Reshape"
    assert "Concat" in kinds(op)


def test_reshape_to_size_zero_sets_allowzero() -> None:
    op = emitter()
    node = op.reshape(value(op, DataType.FLOAT, 0, 3), [0, 5]).producer()
    assert node.attributes["allowzero"].as_int() == 1
    assert "allowzero" not in op.reshape(value(op, DataType.FLOAT, 6, name="y"), [2, 3]).producer().attributes


def test_helpers_that_have_nothing_to_do_emit_nothing(sizes: tuple[torch.SymInt, torch.SymInt]) -> None:
    a, b = sizes
    op = emitter()
    x = value(op, DataType.FLOAT, a, b)
    assert op.reshape(x, [a, b]) is x
    assert op.expand(x, [a, b]) is x
    assert op.transpose(x, [0, 1]) is x
    assert op.transpose(x, [0, -1]) is x
    assert op.squeeze(x) is x
    assert op.unsqueeze(x) is x
    assert kinds(op) == []


def test_helpers_record_the_sizes_of_their_results(sizes: tuple[torch.SymInt, torch.SymInt]) -> None:
    a, b = sizes
    op = emitter()
    x = value(op, DataType.FLOAT, a, 1, b)
    assert op.sizes(op.transpose(x, [2, 0, 1])) == (b, a, 1)
    assert op.sizes(op.squeeze(x, 1)) == (a, b)
    assert op.sizes(op.squeeze(x, -2)) == (a, b)
    assert op.sizes(op.unsqueeze(x, 0, -1)) == (1, a, 1, b, 1)
    assert op.sizes(op.expand(x, [a, 4, b])) == (a, 4, b)
    assert op.rank(x) == 3
    with pytest.raises(LookupError, match="sizes of the intermediate value"):
        op.sizes(op.Relu(x))
