"""Numbers of data, conditions that sizes decide, and findings about exceptions that the program does not raise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.capture.patches.data_conditions import asks_for_fact, left_out_checks
from tests.compare import assert_close

X = torch.tensor([0.5, 0.25, 2.0])


class Model(nn.Module):
    def __init__(self, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.validate = function, True

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)

    def clear(self) -> None:
        self.items: list[int] = []


def asserts(self: Any, x: Tensor) -> Tensor:
    assert (x >= 0).all(), "negative"
    return x.sqrt()


def handles_a_number(self: Any, x: Tensor) -> Tensor:
    try:
        number = int(x.abs().max())
    except Exception:
        number = 3
    return x * number


def handles_an_index(self: Any, x: Tensor) -> Tensor:
    count = (x > 0).nonzero().shape[0]
    with contextlib.suppress(Exception):
        x = x * len(range(count))
    return x


@pytest.mark.parametrize("function", [handles_a_number, handles_an_index])
def test_a_number_whose_error_the_model_handles_is_refused(function: Callable[[Any, Tensor], Tensor]) -> None:
    with pytest.raises(fx_onnx.CaptureError, match="known only when the model runs") as error:
        fx_onnx.export(Model(function).eval(), (X,))
    assert error.value.id == "FX1103"


def with_itself(x: Tensor) -> Tensor:
    return torch.cat([x[x > 0], x])


@pytest.mark.parametrize(
    ("function", "excluded"),
    [
        (lambda self, x: x if with_itself(x).numel() == 0 else with_itself(x), []),
        (lambda self, x: x if with_itself(x).shape[0] < 1 else with_itself(x).sum() + 1, [0]),
        (lambda self, x: x if with_itself(x).shape[0] == 1 else with_itself(x).cumsum(0) + 1, [1]),
    ],
)
def test_sizes_of_inputs_decide_a_condition(function: Callable[[Any, Tensor], Tensor], excluded: list[int]) -> None:
    """``u0 + n == 1`` is false for n >= 2, whatever u0 is; torch assumes such sizes."""
    model = Model(function).eval()
    program = fx_onnx.export(model, (X,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    conditions = program.dims.conditions
    assert [n for n in range(5) if not all(each.holds(dict.fromkeys(each.dims, n)) for each in conditions)] == excluded
    assert len(program.findings) == len(excluded)
    for n in {*range(5)} - {*excluded}:
        x = -torch.rand(n)
        assert_close(program(x), (model(x),))


def sum_is_positive(self: Any, x: Tensor) -> Tensor:
    return int(x.numel()) + int(x.abs().max() + 1) * (x + 1 if bool(x.sum() > 0) is True else x - 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda self, x: x[: int(x.sum())],
        lambda self, x: x * float(x.max()),
        lambda self, x: x.repeat(int(x.abs().max() * 1.5)),
        lambda self, x: x.new_zeros(int(x.max()), 2),
    ],
)
def test_a_number_of_data_stays_symbolic(function: Callable[[Any, Tensor], Tensor]) -> None:
    model = Model(function).eval()
    program = fx_onnx.export(model, (X,))
    for x in (X, torch.tensor([1.5, 0.5, 1.25])):
        assert_close(program(x), (model(x),))


def test_a_number_beside_a_condition_that_strict_mode_answers_wrongly_is_refused() -> None:
    with pytest.raises(fx_onnx.CaptureError, match="known only when the model runs"):
        fx_onnx.export(Model(sum_is_positive).eval(), (X,))


def test_the_forward_runs_as_before_in_eager() -> None:
    model = Model(asserts).eval()
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="FX1111"):
        fx_onnx.export(model, (X,))
    with pytest.raises(AssertionError, match="negative"):
        model(-X)


@pytest.mark.parametrize(
    ("func", "args", "asks"),
    [
        (Tensor.shape.__get__, (X,), True),
        (Tensor.stride, (X,), True),
        (Tensor.size, (X, 0), False),
        (Tensor.__getitem__, (X, 0), False),
        (Tensor.item, (X,), False),
        (torch.sqrt, (X,), False),
    ],
)
def test_facts_of_tensors_are_no_conditions(func: Callable[..., Any], args: tuple[Any, ...], asks: bool) -> None:
    assert asks_for_fact(func, args) is asks


@pytest.mark.parametrize("places", [1, 3, 4, 27])
def test_many_exceptions_are_one_finding(places: int) -> None:
    """With the number of the places and the three most frequent lines."""
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    given = [f"(model.py:{n}: check(x))" for n in range(places)]
    found = list(left_out_checks(program, [*given, *given[-1:]]))
    assert len(found) == (places if places <= 3 else 1)
    if places > 3:
        assert f"at {places} places, most often {given[-1]}, {given[0]}, {given[1]}; check the data" in found[0]
