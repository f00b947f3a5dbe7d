"""The key by which equal constants are shared."""

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from fx_onnx.onnx_model.small_constants import array_key, constant_key


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


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float16, ml_dtypes.bfloat16, ml_dtypes.int4, np.complex64])
def test_the_key_of_an_array_is_that_of_its_tensor(dtype: type) -> None:
    array = np.array([[1, 0, 1]]).astype(dtype)
    assert array_key(array) == constant_key(ir.Tensor(array))
