"""The dims of slices are right at sizes for which a bound is beyond the end of the axis."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import fx_onnx
from tests.capture.sample_modules import Function
from tests.compare import assert_close


def cut_rows(x: Tensor) -> tuple[Tensor, ...]:
    return x[:10], x[-10:], x[4:], x[:-4], x[3:7], x[-9:-3], x[1:11:3], x[:10].mean(0), torch.cat([x[5:], x[:5]])


@pytest.mark.filterwarnings("error::fx_onnx.OnnxExporterWarning")
@pytest.mark.parametrize("rows", [16, 6])
def test_a_slice_is_right_on_both_sides_of_its_bounds(rows: int) -> None:
    program = fx_onnx.export(Function(cut_rows).eval(), (torch.rand(rows, 4),), dynamic_shapes=({0: "n"},))
    shapes = [list(map(str, output.shape or ())) for output in program.model.graph.outputs]
    assert shapes[0] == ["min(10,n)", "4"]
    for size in (2, 5, 9, 16, 20):
        x = torch.rand(size, 4)
        assert_close(program(x), cut_rows(x))


COMPUTED: list[tuple[Callable[[Tensor], Tensor], str | None]] = [
    (lambda x: x[x.shape[0] - 3 : x.shape[0] + 3], None),
    (lambda x: x[-(x.shape[0] // 2) :], None),
    (lambda x: x[: -x.shape[0] // 2], None),
    (lambda x: x[x.shape[0] // 2 :][:4], None),
    (lambda x: x[: x.shape[0] - x.shape[0] % 4].reshape(-1, 4, 4), "n//4"),
]


@pytest.mark.filterwarnings("error::fx_onnx.OnnxExporterWarning")
@pytest.mark.parametrize(("function", "rows"), COMPUTED)
def test_the_size_of_a_slice_with_a_computed_bound_is_an_expression(
    function: Callable[[Tensor], Tensor], rows: str | None
) -> None:
    program = fx_onnx.export(Function(function).eval(), (torch.rand(9, 4),), dynamic_shapes=({0: "n"},))
    found = str((program.model.graph.outputs[0].shape or "?")[0])
    assert "n" in found
    assert found == (rows or found)
    for size in (2, 3, 5, 8, 12, 20):
        x = torch.rand(size, 4)
        assert_close(program(x)[0], function(x))


def assigned(x: Tensor) -> Tensor:
    y = x.clone()
    y[:10] = 0
    return y


def branch_on_a_slice(x: Tensor) -> Tensor:
    return x + 1 if x[:10].shape[0] == 10 else x - 1


def test_a_write_to_a_slice() -> None:
    program = fx_onnx.export(Function(assigned).eval(), (torch.rand(16, 4),), dynamic_shapes=({0: "n"},))
    for size in (4, 12):
        assert_close(program(torch.ones(size, 4)), assigned(torch.ones(size, 4)))


@pytest.mark.parametrize(("function", "condition"), [(branch_on_a_slice, "n >= 10")])
def test_a_condition_on_the_size_of_a_slice_is_reported(function: Callable[[Tensor], Tensor], condition: str) -> None:
    with pytest.warns(fx_onnx.OnnxExporterWarning, match=f"correct only where {condition},"):
        fx_onnx.export(Function(function).eval(), (torch.rand(16, 4),), dynamic_shapes=({0: "n"},))
