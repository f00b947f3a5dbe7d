"""Sizes in fewest terms are the same numbers for each value of their symbol."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fx_onnx.torch_internals.size_private import in_fewest_terms, is_never_negative
from fx_onnx.torch_internals.torch_private import FakeTensorMode


def largest(*numbers: Any) -> Any:
    return torch.sym_max(*numbers)


FORMS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda n: n - n % 4, "4*((s//4))"),
    (lambda n: n + n % 2, "2*(((s + 1)//2))"),
    (lambda n: n + -n % 7, "7*(((s + 6)//7))"),
    (lambda n: n + (7 - n % 7) % 7, "7*(((s + 6)//7))"),
    (lambda n: n + largest(2 - (n - 1) % 2, 0), "2*(((s - 1)//2)) + 3"),
    (lambda n: n + largest((math.ceil(n / 2) - 1) * 2 + 3 - n, 0), "2*(((s + 1)//2)) + 1"),
    (lambda n: n + largest(2 - (n // 2) % 2 - n, 0), ""),
    (lambda n: n + largest(-(n % 3), 0), ""),
    (lambda n: n // 2 + largest(((n // 2 + 1) // 2) * 2 + 1 - n // 2, 0), "2*(((((s//2)) + 1)//2)) + 1"),
    (lambda n: n // 2 + largest(3 - (n // 2) % 4, 0), "4*((s//8)) + 3"),
    (lambda n: n * 3, ""),
]


def dynamic_size() -> Any:
    return FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.ones(9)).shape[0]


@pytest.mark.parametrize(("function", "text"), FORMS)
def test_a_form_is_the_same_number(function: Callable[[Any], Any], text: str) -> None:
    size = dynamic_size()
    number = function(size)
    shortest = in_fewest_terms(number)
    assert (shortest is number) == (text == "")
    assert not text or str(shortest.node.expr).replace(str(size.node.expr), "s") == text
    for value in range(2, 40):
        assert shortest.node.expr.xreplace({size.node.expr: value}) == function(value)


NEVER_NEGATIVE: list[tuple[Callable[[Any], Any], bool]] = [
    (lambda n: 7 * ((n + 6) // 7) - n, True),
    (lambda n: 2 * ((n - 1) // 4) + 1 - (n - 1) // 2, True),
    (lambda n: 2 * ((n - 1) // 4) - (n - 1) // 2, False),
    (lambda n: n - 4 * (n // 4) - 1, False),
    (lambda n: 2 - n % 3, True),
    (lambda n: 3 - 2 * (n % 3), False),
    (lambda n: n // n - 1, True),
    (lambda n: n, False),
    (lambda n: 0, True),
]


@pytest.mark.parametrize(("function", "expected"), NEVER_NEGATIVE)
def test_what_is_never_negative(function: Callable[[Any], Any], expected: bool) -> None:
    size = dynamic_size()
    number = function(size)
    assert is_never_negative(number if isinstance(number, (int, torch.SymInt)) else 0) is expected
    assert not expected or all(function(value) >= 0 for value in range(1, 40))


def test_numbers_without_expressions() -> None:
    other = SimpleNamespace()
    assert in_fewest_terms(other) is other
    assert not is_never_negative(other)
    assert not is_never_negative(-1)
