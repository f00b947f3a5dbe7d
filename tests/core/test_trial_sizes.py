"""Tensors of other sizes, and conditions for them."""

import pytest
import sympy
import torch

from fx_onnx.core.trial_sizes import is_false, resized

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
