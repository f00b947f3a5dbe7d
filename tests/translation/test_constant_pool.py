"""Constants are shared if they have the same dtype, shape and bytes."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir import DataType

from fx_onnx.translation.constant_pool import ConstantPool


@pytest.fixture
def pool() -> ConstantPool:
    return ConstantPool(ir.Graph((), (), nodes=(), opset_imports={"": 20}), lambda name: name)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (np.float32(1), np.float32(1), True),
        (np.float32(0.0), np.float32(-0.0), False),
        (np.float32(1), np.float64(1), False),
        (np.array([1]), np.array([[1]]), False),
        (np.array([1, 2]), np.array([1, 2]), True),
    ],
)
def test_equal_constants_have_equal_bytes(
    pool: ConstantPool, first: np.ndarray, second: np.ndarray, same: bool
) -> None:
    one, two = (pool.get(np.asarray(x), None) for x in (first, second))
    assert (one is two) == same


def test_the_default_dtypes_of_numbers(pool: ConstantPool) -> None:
    assert [pool.get(x, None).dtype for x in (True, 1, 1.5, [[2]], [])] == [
        DataType.BOOL, DataType.INT64, DataType.FLOAT, DataType.INT64, DataType.INT64,
    ]  # fmt: skip


def test_an_integer_constant_refuses_a_fraction(pool: ConstantPool) -> None:
    assert pool.get(2.0, DataType.INT32).const_value.numpy() == 2
    with pytest.raises(TypeError, match="promote the operands"):
        pool.get(0.5, DataType.INT32)


def test_a_known_constant_makes_no_tensor(pool: ConstantPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that only a new constant makes a tensor, because translations ask for known constants most of the time."""
    first = pool.get([1, 2], None)
    monkeypatch.setattr(ir, "Tensor", None)
    assert pool.get([1, 2], None) is first
    with pytest.raises(TypeError):
        pool.get([1, 3], None)
