"""Every limit on a dim asked to be dynamic is said in one sentence, and what need not be fixed is not."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import fx_onnx
from fx_onnx.capture.capture import capture
from fx_onnx.capture.request import parse_request
from fx_onnx.capture.size_constraints import size_constraints
from fx_onnx.core.errors import OnnxExporterWarning
from tests.compare import assert_close


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor | None = None) -> object:
        return self.function(x) if y is None else self.function(x, y)


def warned(function: Callable[..., object], *shapes: object, rows: int = 5, dim: object = "rows") -> list[str]:
    """What an export with dynamic rows warns of."""
    args = tuple(torch.rand(rows, 4) for _ in shapes or (None,))
    spec = tuple({0: dim if isinstance(dim, Dim) else f"{dim}{i or ''}"} for i in range(len(args)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OnnxExporterWarning)
        capture(parse_request(Function(function).eval(), args, dynamic_shapes=spec))
    return [str(each.message) for each in caught if each.category is OnnxExporterWarning]


def branch_above(x: Tensor) -> Tensor:
    return x + 1 if x.shape[0] > 4 else x - 1


def branch_below(x: Tensor) -> Tensor:
    return x + 1 if x.shape[0] < 8 else x - 1


def branch_on_parity(x: Tensor) -> Tensor:
    return x + 1 if x.shape[0] % 2 else x - 1


def branch_at(x: Tensor) -> Tensor:
    return x + 1 if x.shape[0] == 8 else x - 1


def logarithm(x: Tensor) -> Tensor:
    return x / math.log(x.shape[0] + 1.0)


@pytest.mark.parametrize(
    ("function", "condition", "cause"),
    [
        (branch_above, "rows >= 5", "fails or takes another branch for other sizes"),
        (branch_below, "rows <= 7", "fails or takes another branch for other sizes"),
        (branch_on_parity, "rows % 2 != 0", "fails or takes another branch for other sizes"),
        (branch_at, "rows != 8", "fails or takes another branch for other sizes"),
        (logarithm, "float(rows) + 1.0 == 6.0", "converts a size to a Python number"),
    ],
)
def test_a_limit_names_dim_condition_and_line(function: Callable[..., object], condition: str, cause: str) -> None:
    (message,) = warned(function)
    assert message.startswith(f"The exported model is correct only where {condition}, because the code {cause} (")
    assert message.endswith(f" in {function.__name__}).")
    assert f"({__file__}:" in message


def test_a_table_that_is_too_short() -> None:
    (message,) = warned(lambda x: x + torch.ones(16, 4)[: x.shape[0]])
    assert message == (
        "The exported model is correct only where rows <= 16, because the code fails or takes another branch for "
        "other sizes."
    )


@pytest.mark.parametrize(
    ("function", "condition"),
    [
        (lambda x, y: x[-9:], "rows <= 8"),
        (lambda x, y: torch.cat([x, y])[-12:], "rows + rows1 < 12"),
        (lambda x, y: torch.cat([x, y])[:12], "rows + rows1 < 12"),
    ],
)
def test_slices_beyond_the_size_are_cut_off(function: Callable[..., object], condition: str) -> None:
    """What is shorter than a slice in the example is taken whole, which is correct only where it stays shorter."""
    (message,) = warned(function, 1, 2)
    assert f"correct only where {condition}," in message.replace("rows1 + rows", "rows + rows1")


def test_a_relation_between_two_dims() -> None:
    def longer(x: Tensor, y: Tensor) -> Tensor:
        return x.sum() if x.shape[0] < 2 * y.shape[0] else y.sum()

    (message,) = warned(longer, 1, 2)
    assert "rows < 2*rows1" in message or "2*rows1 > rows" in message


@pytest.mark.parametrize(
    "function",
    [
        torch.relu,
        lambda x: x.reshape(-1, 2, 2),
        lambda x: x[1:] * 2 if x.shape[0] > 1 else x,
        lambda x: (x[:3], x[2:], x[-2:], x.chunk(2)),
        lambda x: torch.nn.functional.conv1d(x.T[None], torch.ones(1, 4, 3)),
        lambda x: x @ x.T + x.sum() / x.shape[0],
        lambda x: torch.cat([x, x[: x.shape[0] // 2]]),
    ],
)
def test_no_limit(function: Callable[..., object]) -> None:
    assert warned(function) == []


def test_a_limit_that_was_asked_for() -> None:
    assert warned(branch_below, dim=Dim("rows", min=2, max=7)) == []
    assert len(warned(branch_below, dim=Dim("rows", min=2, max=9))) == 1


def check(function: Callable[..., object], rows: int) -> str:
    """Exports without a warning, compares at two sizes; gives how it was captured."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        request = parse_request(Function(function).eval(), (torch.rand(rows, 4),), dynamic_shapes=({0: "rows"},))
        strategy = capture(request).strategy
        program = fx_onnx.export(
            Function(function).eval(), (torch.rand(rows, 4),), dynamic_shapes=({0: "rows"},), verbose=False
        )
    for size in (rows, rows + 4):
        x = torch.rand(size, 4)
        assert_close(program(x), function(x))
    return strategy


def test_a_part_of_the_example_that_has_one_row_by_chance() -> None:
    assert check(lambda x: x.split([2, x.shape[0] - 2]), 3) == "torch.export(strict=False)"
    assert check(lambda x: x[: x.shape[0] // 2] + 1, 3) == "torch.export(strict=False)"


def test_plain_numbers_of_sizes_stay_dynamic_in_strict_mode() -> None:
    assert check(lambda x: x.new_zeros(int(x.shape[0] * 0.7)), 5) == "torch.export(strict=True)"
    assert check(lambda x: x * int(x.shape[0] ** 0.5), 5) == "torch.export(strict=True)"


def test_of_a_program_without_guards() -> None:
    program = torch.export.export(Function(torch.relu), (torch.rand(3, 4),))
    assert size_constraints(parse_request(program), program, []) == []


def test_a_larger_example_must_go_the_same_way() -> None:
    """The last piece of five rows has one row, by chance; of twenty there would be other pieces."""

    def pieces(x: Tensor) -> Tensor:
        return torch.cat([piece * number for number, piece in enumerate(x.split(2))])

    x = torch.rand(5, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxExporterWarning)
        program = fx_onnx.export(Function(pieces).eval(), (x,), dynamic_shapes=({0: "rows"},), verbose=False)
    assert_close(program(x), pieces(x))
