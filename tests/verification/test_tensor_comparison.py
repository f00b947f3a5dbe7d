"""Comparison of two tensors: tolerances by dtype, outliers, values that are not finite, and the measures."""

import math
import re

import pytest
import torch

from fx_onnx.onnx_model.tolerances import OUTLIER_FACTOR
from fx_onnx.verification.tensor_comparison import Tolerance, compare, errors_in_double

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("expected", "found", "problem"),
    [
        (torch.ones(2), torch.ones(2) + 5e-5, ""),
        (torch.ones(2), torch.ones(2) + 5e-4, "largest difference"),
        (torch.tensor([1000.0, 0.0]), torch.tensor([1000.0, 0.05]), ""),
        (torch.zeros(2), torch.full((2,), 1e-8), ""),
        (torch.zeros(2), torch.full((2,), 1e-3), "largest difference"),
        (torch.ones(2), torch.ones(1, 2), r"the shape is \[1, 2\] instead of \[2\]"),
        (torch.ones(2), torch.ones(2).double(), "the dtype is float64 instead of float32"),
        (torch.tensor([NAN, INF, 1.0]), torch.tensor([NAN, INF, 1.0]), ""),
        (torch.tensor([INF, 1.0]), torch.tensor([-INF, 1.0]), "1 elements are NaN or infinite"),
        (torch.tensor([NAN, 1.0]), torch.tensor([0.0, 1.0]), "1 elements are NaN or infinite"),
        (torch.tensor([2.0, 1.0]), torch.tensor([NAN, NAN]), "2 elements are NaN or infinite"),
        (torch.ones(0, 3), torch.ones(0, 3), ""),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "largest difference"),
        (torch.tensor([2**62]), torch.tensor([2**62 + 1]), "largest difference"),
        (torch.tensor([True, False]), torch.tensor([True, True]), "largest difference"),
        (torch.ones(2).bfloat16(), torch.full((2,), 1.03).bfloat16(), ""),
        (torch.ones(2).half(), torch.full((2,), 1.03).half(), "largest difference"),
        (torch.ones(2).to(torch.float8_e5m2), torch.ones(2).to(torch.float8_e5m2), ""),
        (torch.tensor([1 + 2j]), torch.tensor([[1.0, 2.0]]), ""),
        (torch.tensor([1 + 2j]), torch.tensor([[1.0, -2.0]]), "largest difference"),
        (7, torch.tensor(7), ""),
        (1.5, torch.tensor(1.5, dtype=torch.float64), ""),
    ],
)
def test_compare(expected, found, problem):
    difference = compare("y", expected, found)
    assert difference.ok == (not problem)
    assert re.search(problem, difference.problem)


def test_the_measures_of_a_difference():
    difference = compare("y", torch.tensor([4.0, 2.0, INF]), torch.tensor([4.0, 1.0, 5.0]), module="a.b")
    assert (difference.max_abs, difference.max_rel, difference.nonfinite) == (1.0, 0.25, 1)
    assert difference.module == "a.b"
    assert difference.tolerance == pytest.approx(4e-4, rel=1e-3)


def half_ones(dtype, size, outliers, by):
    """Returns ones, some of which are larger."""
    values = torch.ones(size, dtype=dtype)
    values[:outliers] += by
    return values


@pytest.mark.parametrize(
    ("dtype", "outliers", "by", "ok"),
    [
        (torch.float16, 2, 0.03, True),  # 2 of 2,000 may exceed 0.01, up to 0.04
        (torch.float16, 3, 0.03, False),
        (torch.float16, 1, 0.05, False),
        (torch.bfloat16, 2, 0.18, True),
        (torch.bfloat16, 1, 0.25, False),
        (torch.float32, 1, 2e-4, False),
    ],
)
def test_a_share_of_outliers_is_allowed_in_half_precision(dtype, outliers, by, ok):
    expected = torch.ones(2000, dtype=dtype)
    difference = compare("y", expected, half_ones(dtype, 2000, outliers, by))
    assert difference.ok == ok
    assert difference.outliers == outliers
    assert difference.max_abs > difference.tolerance


def test_small_tensors_and_given_tolerances_allow_no_outliers():
    assert not compare("y", torch.ones(999).half(), half_ones(torch.float16, 999, 1, 0.02)).ok
    assert not compare("y", torch.ones(2000).half(), half_ones(torch.float16, 2000, 1, 0.02), Tolerance(0.01)).ok
    assert compare("y", torch.ones(1000).half(), half_ones(torch.float16, 1000, 1, 0.02)).ok
    assert OUTLIER_FACTOR == 4


def test_tolerances():
    assert Tolerance().limits(torch.float32) == Tolerance().limits(torch.complex64) == (1e-4, 1e-7, 0)
    assert Tolerance().limits(torch.int64) == (0, 0, 0)
    assert Tolerance(rtol=0.5).limits(torch.float16) == (0.5, 1e-7, 0)
    assert Tolerance(rtol=0.5, atol=0.25).limits(torch.int64) == (0.5, 0.25, 0)


def test_a_tolerance_by_element():
    """The large element hides no difference of the small one."""
    expected, found = torch.tensor([1000.0, 1.0]), torch.tensor([1000.5, 1.01])
    assert compare("y", expected, found, Tolerance(1e-3)).ok
    difference = compare("y", expected, found, Tolerance(1e-3, by_element=True))
    assert difference.problem.startswith("1 of 2 elements differ by more than 1e-07 plus 0.001 of their magnitude; the")
    assert compare("y", expected, expected.double(), Tolerance(check_dtype=False)).ok
    assert compare("y", expected, expected[None], Tolerance(check_shape=False)).ok


def test_a_share_of_elements_that_may_differ_by_any_amount():
    expected, found = torch.ones(4), torch.tensor([1.0, 1.0, 1.0, NAN])
    assert compare("y", expected, found, Tolerance(outliers=0.25)).ok
    assert not compare("y", expected, found, Tolerance(outliers=0.2)).ok
    assert not compare("y", expected, expected.double(), Tolerance(outliers=0.25)).ok


@pytest.mark.parametrize(
    ("eager", "onnx", "exact", "errors"),
    [
        ([1.0, 2.5], [1.0, 2.25], [1.0, 2.0], (0.5, 0.25)),
        ([1.0, 2.25], [1.5, 2.0], [1.0, 2.0], (0.25, 0.5)),
        ([INF, 2.0], [7.0, 2.5], [7.0, 2.0], (0.0, 0.5)),  # infinite in PyTorch, where float64 is not
        ([7.0, 2.0], [NAN, 2.0], [7.0, 2.0], (0.0, INF)),
        ([NAN], [0.0], [NAN], (0.0, INF)),
        ([INF, 1.0], [INF, 1.5], [INF, 1.0], (0.0, 0.5)),
        ([[1.0]], [1.0], [1.0], (0.0, INF)),  # another shape
    ],
)
def test_errors(eager: list[float], onnx: list[float], exact: list[float], errors: tuple[float, float]) -> None:
    assert errors_in_double(torch.tensor(eager), torch.tensor(onnx), torch.tensor(exact).double()) == errors


def test_the_error_of_integers_is_how_many_differ() -> None:
    eager, onnx, exact = torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 9, 4]), torch.tensor([1, 5, 9, 4])
    assert errors_in_double(eager, onnx, exact) == (2.0, 1.0)
