"""Tensors of other sizes, and conditions for them."""

import pytest
import sympy
import torch
from torch.utils._sympy import functions as sizes

from fx_onnx.sizes.trial_sizes import condition_of, is_false, is_identity, resized

N = sympy.Symbol("n", integer=True)


@pytest.mark.parametrize(("size", "expected"), [(4, True), (2, False), (0, False)])
def test_a_condition_that_is_undefined_is_not_false(size: int, expected: bool) -> None:
    class Quotient(sympy.Function):
        @classmethod
        def eval(cls, n: sympy.Integer) -> sympy.Integer | None:
            return sympy.Integer(4 // int(n)) if n.is_number else None

    assert is_false(sympy.Eq(Quotient(N), 2), {N: sympy.Integer(size)}) is expected


def test_axes_are_cut_or_repeated_and_empty_ones_become_zeros() -> None:
    x = torch.tensor([[1, 2, 3]])
    assert resized(x, [2, 2]).tolist() == [[1, 2], [1, 2]]
    assert resized(x, [1, 5]).tolist() == [[1, 2, 3, 1, 2]]
    assert resized(x[:, :0], [1, 2]).tolist() == [[0, 0]]
    copy = resized(x, [1, 3])
    copy[0, 0] = 9
    assert x[0, 0] == 1


@pytest.mark.parametrize(
    ("condition", "size", "expected"),
    [
        (sympy.Ge(N, 3), 3, True),
        (sympy.Ge(N, 3), 2, False),
        (sympy.Eq(sizes.FloorDiv(N, 2), 4), 9, True),
        (sympy.Eq(sizes.FloorDiv(N, 2), 4), 7, False),
        (sympy.Eq(sizes.PythonMod(N, 4), 0), 8, True),
        (sympy.Eq(sizes.PythonMod(N, 4), 0), 6, False),
        (sympy.Eq(sizes.CeilDiv(N, 4), 2), 5, True),
        (sympy.Eq(sizes.TruncToInt(0.7 * sizes.ToFloat(N)), 3), 5, True),
        (sympy.Eq(sizes.TruncToInt(0.7 * sizes.ToFloat(N)), 3), 6, False),
        (sympy.Eq(sizes.Max(N, 5), 5), 5, True),
        (sympy.Eq(sizes.Max(N, 5), 5), 6, False),
        (sympy.Gt(sizes.OpaqueUnaryFn_sqrt(N), 2), 5, True),
        (sympy.And(N > 2, N < 5), 5, False),
        (sympy.Or(N > 2, N < 0), 3, True),
        (sympy.Eq(sizes.FloorDiv(8, N), 2), 0, True),  # undefined
        (sympy.true, 4, True),
    ],
)
def test_a_condition_as_a_function(condition: sympy.Basic, size: int, expected: bool) -> None:
    assert condition_of(condition, (N,))(size) is expected


def test_the_sizes_are_in_the_order_of_the_symbols() -> None:
    other = sympy.Symbol("m", integer=True)
    assert [condition_of(other > N, symbols)(1, 2) for symbols in ((N, other), (other, N))] == [True, False]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (sympy.Eq(sizes.Max(N, 5) + sizes.Min(N, 5), N + 5), True),
        (sympy.Eq(sizes.Max(N, 777), N), False),
        (sympy.Eq(sizes.Min(N, 777), N), False),
        (sympy.Ne(N, 0), False),
    ],
)
def test_a_condition_that_always_holds(condition: sympy.Basic, expected: bool) -> None:
    assert is_identity(condition) is expected


def test_an_unknown_function_is_substituted() -> None:
    class Halved(sympy.Function):
        @classmethod
        def eval(cls, n: sympy.Integer) -> sympy.Integer | None:
            return sympy.Integer(int(n) // 2) if n.is_number else None

    assert [condition_of(sympy.Eq(Halved(N), 2), (N,))(size) for size in (5, 6)] == [True, False]
