"""Equal values of two computations differ by roundings of their dtype."""

from __future__ import annotations

import pytest
import torch

from fx_onnx.onnx_model.tolerances import are_close, limits_of

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
def test_are_close(got: list[complex], want: list[complex], dtype: torch.dtype, expected: bool) -> None:
    assert are_close(torch.tensor(got, dtype=dtype), torch.tensor(want, dtype=dtype)) is expected


def test_shapes_and_dtypes_are_equal() -> None:
    one = torch.ones(2)
    assert not are_close(one, torch.ones(2, 1)) and not are_close(one, one.double())


@pytest.mark.parametrize(("difference", "expected"), [(0.03, True), (0.05, False)])
def test_one_element_of_1000_in_float16_may_be_an_outlier(difference: float, expected: bool) -> None:
    want = torch.ones(1000, dtype=torch.float16)
    assert are_close(torch.cat([want[1:], want[:1] + difference]), want) is expected


def test_limits() -> None:
    assert limits_of(torch.complex128) == limits_of(torch.float64)
    assert limits_of(torch.float8_e5m2).rtol == 0.25 and limits_of(torch.bool).atol == 0
