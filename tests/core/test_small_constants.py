"""The key by which equal constants are shared."""

import numpy as np
import onnx_ir as ir
import pytest

from fx_onnx.core.small_constants import constant_key


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (np.float32(1), np.float32(1), True),
        (np.float32(0.0), np.float32(-0.0), False),
        (np.float32("nan"), np.float32("nan"), True),
        (np.float32(1), np.float64(1), False),
        (np.zeros(2, np.int32), np.zeros(2, np.float32), False),
        (np.array([1]), np.array([[1]]), False),
    ],
)
def test_equal_means_the_same_dtype_shape_and_bytes(first: np.ndarray, second: np.ndarray, same: bool) -> None:
    one, two = (constant_key(ir.Tensor(np.asarray(x))) for x in (first, second))
    assert (one == two) == same
