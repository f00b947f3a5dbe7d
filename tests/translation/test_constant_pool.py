"""Constants are deduplicated by dtype, shape and bytes."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir import DataType

from fx_onnx.translation.constant_pool import Constants, dtype_of_number, refuse_fractions


def constants() -> Constants:
    return Constants(ir.Graph((), (), nodes=(), opset_imports={"": 20}), lambda name: name)


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
def test_equal_means_equal_bytes(first: np.ndarray, second: np.ndarray, same: bool) -> None:
    pool = constants()
    one, two = (pool.get(np.asarray(x), DataType.from_numpy(np.asarray(x).dtype)) for x in (first, second))
    assert (one is two) == same


def test_the_dtype_of_bare_numbers() -> None:
    assert [dtype_of_number(x) for x in (True, 1, 1.5, [[2]], [])] == [
        DataType.BOOL, DataType.INT64, DataType.FLOAT, DataType.INT64, DataType.INT64,
    ]  # fmt: skip


def test_fractions_are_no_integers() -> None:
    refuse_fractions(2.0)
    with pytest.raises(TypeError, match="promote the operands"):
        refuse_fractions(0.5)
