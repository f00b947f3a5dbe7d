"""Every constraint on a dynamic dim gives one warning; dims that need no constraint stay unconstrained."""

from __future__ import annotations

import linecache
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
from tests.capture.sample_modules import Function
from tests.compare import assert_close


def warned(function: Callable[..., object], inputs: int = 1, rows: int = 5, dim: object = "rows") -> list[str]:
    """Returns the warnings of a capture with this number of inputs, whose rows are dynamic."""
    args = tuple(torch.rand(rows, 4) for _ in range(inputs))
    spec = tuple({0: dim if isinstance(dim, Dim) else f"{dim}{i or ''}"} for i in range(len(args)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OnnxExporterWarning)
        capture(parse_request(Function(function).eval(), args, dynamic_shapes=spec))
    texts = [str(each.message) for each in caught if each.category is OnnxExporterWarning]
    return [text.rpartition(" [FX")[0] for text in texts]


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
def test_a_warning_names_the_condition_and_the_line(
    function: Callable[..., object], condition: str, cause: str
) -> None:
    (message,) = warned(function)
    assert message.startswith(f"The exported model is correct only where {condition}, because the code {cause} (")
    line = function.__code__.co_firstlineno + 1
    assert message.endswith(f"({__file__}:{line}: {linecache.getline(__file__, line).strip()}).")


def test_a_condition_with_a_minimum_is_solved() -> None:
    (message,) = warned(lambda x: x[7:])  # no row of the example is left
    assert "correct only where rows <= 7," in message


def test_a_slice_of_a_constant_bounds_the_size() -> None:
    (message,) = warned(lambda x: x + torch.ones(16, 4)[: x.shape[0]])
    line = test_a_slice_of_a_constant_bounds_the_size.__code__.co_firstlineno + 1
    assert message == (
        "The exported model is correct only where rows <= 16, because the code fails or takes another branch for "
        f"other sizes ({__file__}:{line}: (message,) = warned(lambda x: x + torch.ones(16, 4)[: x.shape[0]]))."
    )


def test_a_comparison_of_two_dims() -> None:
    def longer(x: Tensor, y: Tensor) -> Tensor:
        return x.sum() if x.shape[0] < 2 * y.shape[0] else y.sum()

    (message,) = warned(longer, inputs=2)
    assert "rows < 2*rows1" in message or "2*rows1 > rows" in message


@pytest.mark.parametrize(
    "function",
    [
        torch.relu,
        lambda x: x.reshape(-1, 2, 2),
        lambda x: (x[:3], x[2:], x[-2:], x.chunk(2)),
        lambda x: (x[-9:], x[:9], x[:-3], x[3:-1]),
        lambda x: (torch.cat([x, x])[-12:], torch.cat([x, x])[:12]),
        lambda x: torch.nn.functional.conv1d(x.T[None], torch.ones(1, 4, 3)),
        lambda x: x @ x.T + x.sum() / x.shape[0],
        lambda x: torch.cat([x, x[: x.shape[0] // 2]]),
    ],
)
def test_no_constraint(function: Callable[..., object]) -> None:
    assert warned(function) == []


def test_a_requested_range_is_not_reported() -> None:
    assert warned(branch_below, dim=Dim("rows", min=2, max=7)) == []
    assert len(warned(branch_below, dim=Dim("rows", min=2, max=9))) == 1


def check(function: Callable[..., object], rows: int) -> str:
    """Exports without a warning, compares the results at two sizes, and returns the strategy of the capture."""
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


def test_a_slice_with_one_row_in_the_example_stays_dynamic() -> None:
    assert check(lambda x: x.split([2, x.shape[0] - 2]), 3) == "torch.export(strict=False)"
    assert check(lambda x: x[: x.shape[0] // 2] + 1, 3) == "torch.export(strict=False)"


def test_sizes_converted_to_python_numbers_stay_dynamic_in_strict_mode() -> None:
    assert check(lambda x: x.new_zeros(int(x.shape[0] * 0.7)), 5) == "torch.export(strict=True)"
    assert check(lambda x: x * int(x.shape[0] ** 0.5), 5) == "torch.export(strict=True)"


def test_a_program_without_guards_has_no_constraints() -> None:
    program = torch.export.export(Function(torch.relu), (torch.rand(3, 4),))
    assert size_constraints(parse_request(program), program, []) == []


def test_a_larger_example_must_take_the_same_branches() -> None:
    """Five rows are split into three pieces, and the last one has one row; twenty rows would give ten pieces."""

    def pieces(x: Tensor) -> Tensor:
        return torch.cat([piece * number for number, piece in enumerate(x.split(2))])

    x = torch.rand(5, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxExporterWarning)
        program = fx_onnx.export(Function(pieces).eval(), (x,), dynamic_shapes=({0: "rows"},), verbose=False)
    assert_close(program(x), pieces(x))


def test_pieces_of_tensor_split_hold_for_every_remainder() -> None:
    """torch asks for the remainder of the example: 7 rows are 3 + 2 + 2."""
    assert warned(lambda x: x.tensor_split(3)[0], rows=7) == []


def test_a_view_whose_inferred_size_torch_simplifies() -> None:
    """torch declares that the result has as many columns as x, which an odd number of rows makes wrong."""

    class View(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.view(x.shape[0] // 2, 2, -1).mean(1)

    with pytest.warns(OnnxExporterWarning, match=r"^The exported model is correct only where rows % 2 == 0, [^\n]*$"):
        shapes = ({0: "rows", 1: "columns"},)
        program = fx_onnx.export(View().eval(), (torch.rand(4, 6),), dynamic_shapes=shapes, verbose=False)
    x = torch.rand(3, 6)
    assert_close(program(x), View()(x))


@pytest.mark.parametrize("opset", [11, 20])
def test_a_view_of_the_wrong_number_of_elements_fails_as_in_eager_mode(opset: int) -> None:
    class View(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.reshape(-1, 4).sum(1)

    shapes = ({0: "rows", 1: "columns"},)
    program = fx_onnx.export(View().eval(), (torch.rand(4, 6),), dynamic_shapes=shapes, opset_version=opset)
    assert_close(program(torch.ones(2, 2)), torch.tensor([4.0]))
    with pytest.raises(Exception, match="reshape"):
        program(torch.ones(3, 5))


def test_an_assertion_is_no_conversion() -> None:
    class Even(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            assert x.shape[0] % 2 == 0
            return x * 2

    with pytest.warns(OnnxExporterWarning, match=r"rows % 2 == 0, because the code fails .*: assert "):
        fx_onnx.export(Even().eval(), (torch.rand(4, 6),), dynamic_shapes=({0: "rows"},), verbose=False)
