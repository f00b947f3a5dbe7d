"""Equal operators on equally numbered arguments have results with equal numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fx_onnx.capture.proof import value_numbers
from fx_onnx.capture.proof.value_numbers import ValueNumbers
from fx_onnx.torch_internals.operators import aten


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
        (lambda x: x.t().exp(), lambda x: x.transpose(0, 1).exp()),
        (lambda x: x[1:, 1:].exp(), lambda x: x[:, 1:][1:].exp()),
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


IMAGES, ROWS = torch.empty(2, 4, 5, 5, device="meta"), torch.empty(2, 3, 4, device="meta")
FOUR, WRONG = torch.empty(4, device="meta"), torch.empty(3, device="meta")
BATCH, LAYER = aten.native_batch_norm.default, aten.native_layer_norm.default


@pytest.mark.parametrize(
    ("operator", "args"),
    [
        (BATCH, (IMAGES, FOUR, FOUR, FOUR, FOUR, False, 0.1, 1e-5)),
        (BATCH, (IMAGES.to(memory_format=torch.channels_last), FOUR, None, FOUR, FOUR, False, 0.1, 1e-5)),
        (BATCH, (IMAGES, None, None, None, None, True, 0.1, 1e-5)),
        (BATCH, (ROWS.mT, FOUR, FOUR, FOUR, FOUR, False, 0.1, 1e-5)),
        (LAYER, (ROWS, [4], FOUR, FOUR, 1e-5)),
        (LAYER, (ROWS.half(), [3, 4], None, None, 1e-5)),
        (LAYER, (torch.empty(2, 4, 3, device="meta").mT, [4], FOUR, None, 1e-5)),
    ],
)
def test_the_shapes_of_normalizations(operator: Any, args: tuple[Any, ...]) -> None:
    (found, *others), (expected, *_) = value_numbers._SHAPES[operator](*args), operator(*args)
    assert (found.shape, found.stride(), found.dtype) == (expected.shape, expected.stride(), expected.dtype)
    assert len(others) == 2


@pytest.mark.parametrize(
    ("operator", "args"),
    [(BATCH, (IMAGES, WRONG, None, FOUR, FOUR, False, 0.1, 1e-5)), (LAYER, (ROWS, [3], WRONG, None, 1e-5))],
)
def test_normalizations_refuse_other_shapes(operator: Any, args: tuple[Any, ...]) -> None:
    with pytest.raises(RuntimeError):
        operator(*args)
    with pytest.raises(RuntimeError):
        value_numbers._SHAPES[operator](*args)
