"""Equal values of two computations differ by roundings of their dtype."""

from __future__ import annotations

import pytest
import torch

from fx_onnx.onnx_model.tolerances import distance_of, limits_of

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("got", "want", "dtype", "expected"),
    [
        ([1.0, 100.001], [1.0, 100.0], torch.float32, True),
        ([1.0, 100.1], [1.0, 100.0], torch.float32, False),
        ([1.0, 100.001], [1.0, 100.0], torch.float64, False),
        ([1.0, 100.5], [1.0, 100.0], torch.float16, True),
        ([1.0, 103.0], [1.0, 100.0], torch.bfloat16, True),
        ([0.0], [1e-8], torch.float32, True),
        ([0.0], [1e-6], torch.float32, False),
        ([NAN, INF, 1.0], [NAN, INF, 1.0], torch.float32, True),
        ([NAN, 1.0], [INF, 1.0], torch.float32, False),
        ([1.0, INF], [1.0, 5.0], torch.float32, False),
        ([3], [3], torch.int64, True),
        ([3], [4], torch.int64, False),
        ([True], [False], torch.bool, False),
        ([1 + 1j], [1 + 1.00001j], torch.complex64, True),
        ([1 + 1j], [1 + 1.1j], torch.complex64, False),
        ([], [], torch.float32, True),
    ],
)
def test_distances(got: list[complex], want: list[complex], dtype: torch.dtype, expected: bool) -> None:
    far = distance_of(torch.tensor(want, dtype=dtype), torch.tensor(got, dtype=dtype))
    assert (not far.problem) is expected


def test_shapes_and_dtypes_are_equal() -> None:
    one = torch.ones(2)
    assert distance_of(one, torch.ones(2, 1)).problem == "the shape is [2, 1] instead of [2]"
    assert distance_of(one, one.double()).problem == "the dtype is float64 instead of float32"
    assert not distance_of(one, one.double(), check_dtype=False).problem


@pytest.mark.parametrize(("difference", "expected"), [(0.03, True), (0.05, False)])
def test_one_element_of_1000_in_float16_may_be_an_outlier(difference: float, expected: bool) -> None:
    want = torch.ones(1000, dtype=torch.float16)
    assert (not distance_of(want, torch.cat([want[1:], want[:1] + difference])).problem) is expected


def test_limits() -> None:
    assert limits_of(torch.complex128) == limits_of(torch.float64)
    assert limits_of(torch.float8_e5m2).rtol == 0.25 and limits_of(torch.bool).atol == 0
