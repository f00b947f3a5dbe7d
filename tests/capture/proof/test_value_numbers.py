"""Equal operators on equally numbered arguments have results with equal numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fx_onnx.capture.proof.value_numbers import ValueNumbers


def numbers(function: Callable[[Tensor], Any], *others: Callable[[Tensor], Any]) -> list[Any]:
    """Returns what identifies the results of functions of one tensor (3, 2)."""
    mode, x = ValueNumbers(True), torch.empty(3, 2, device="meta")
    mode.define(x, mode.number("x"))
    found = []
    for each in (function, *others):
        mode.begin()
        with mode:
            found.append(mode.read(each(x)))
    return found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x.exp(), lambda x: x.exp()),
        (lambda x: x + 1, lambda x: torch.add(x, 1)),
        (lambda x: x * x.exp(), lambda x: x.exp() * x),
        (lambda x: x.exp().contiguous(), lambda x: x.exp()),
        (lambda x: x.T.T.exp(), lambda x: x.exp()),
    ],
)
def test_equal_results(one: Callable[[Tensor], Any], other: Callable[[Tensor], Any]) -> None:
    first, second = numbers(one, other)
    assert first == second


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x.exp(), lambda x: x.log()),
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x: x - x.exp(), lambda x: x.exp() - x),
        (lambda x: x.exp(), lambda x: x.exp()[None]),
        (lambda x: x.clone().add_(1), lambda x: x.clone()),
    ],
)
def test_other_results(one: Callable[[Tensor], Any], other: Callable[[Tensor], Any]) -> None:
    first, second = numbers(one, other)
    assert first != second
