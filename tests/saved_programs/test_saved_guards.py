"""The guards of a program from a file, which the file keeps as Python code."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

import fx_onnx
from tests.modules import FunctionModule


def reloaded(function: Callable[..., Any], *dims: Any) -> ExportedProgram:
    """Returns a program of two inputs, of 8 × 4 and 3 elements, after a round trip through a file."""
    arguments = (torch.randn(8, 4), torch.randn(3))
    program = torch.export.export(FunctionModule(function), arguments, dynamic_shapes={"tensors": dims})
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def pad_to_8(x: Tensor, y: Tensor) -> Tensor:
    return x.view(-1, 8) + y.sum()


def longer(x: Tensor, y: Tensor) -> Tensor:
    return x.sum() if x.shape[0] > y.shape[0] + 1 else y.sum()


def window(x: Tensor, y: Tensor) -> Tensor:
    return x[max(3, y.shape[0]) :] + x[5]


@pytest.mark.parametrize(
    ("function", "texts"),
    [
        (pad_to_8, ["tensors_0_dim_0: 4 or more, even", "tensors_1_dim_0: 2 or more"]),
        (longer, ["tensors_0.shape[0] > tensors_1.shape[0] + 1"]),
        (window, ["tensors_0_dim_0: 6 or more"]),
    ],
)
@pytest.mark.filterwarnings("ignore::fx_onnx.OnnxExporterWarning")
def test_conditions_are_those_of_the_capture(function: Callable[..., Any], texts: list[str]) -> None:
    program = reloaded(function, {0: Dim.AUTO}, {0: Dim.AUTO})
    for _ in range(2):  # a second export finds the same
        dims = str(fx_onnx.export(program).dims)
        assert [text for text in texts if text not in dims] == []


@pytest.mark.parametrize(
    ("dim", "words"),
    [
        (Dim("n", min=3, max=9), "3 to 9"),
        (Dim("n", min=0), "any"),
        (Dim("n", max=9), "at most 9"),
        (2 * Dim("n"), "even"),
    ],
)
def test_ranges_are_those_of_the_capture(dim: Any, words: str) -> None:
    program = reloaded(lambda x, y: x * 2 + y.sum(), {0: dim}, {})
    assert words in str(fx_onnx.export(program).dims)


def test_a_file_does_not_warn_of_dims_that_were_requested_as_related() -> None:
    n = Dim("n", min=2)
    program = reloaded(lambda x, y: x[:1] + y.sum(), {0: n + 5}, {0: n})
    assert fx_onnx.export(program).findings == []


def test_a_guard_that_cannot_be_read_is_told_as_it_is() -> None:
    program = reloaded(pad_to_8, {0: Dim.AUTO}, {0: Dim.AUTO})
    code = ["f(L['tensors'][0].size()[0]) == 3", "not ("]
    with (
        mock.patch.object(program, "_guards_code", code),
        pytest.warns(
            fx_onnx.OnnxExporterWarning, match=r"only where f\(L\['tensors'\]\[0\].size\(\)\[0\]\) == 3, which the"
        ),
    ):
        fx_onnx.export(program)
