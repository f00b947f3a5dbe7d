"""Example arguments for an ExportedProgram must be ones that it takes, and are those with which it is verified."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import fx_onnx
from fx_onnx.export import export
from fx_onnx.messages.errors import ArgumentError


class Model(nn.Module):
    def forward(self, x: Tensor, y: Tensor, scale: float = 2.0) -> Tensor:
        return x[1:].sum() + y * scale


def program() -> torch.export.ExportedProgram:
    """x has n rows of at most 64, y has 2 * n."""
    n = Dim("n", min=3, max=64)
    shapes = {"x": {0: n}, "y": {0: 2 * n}}
    return torch.export.export(Model(), (torch.zeros(4, 3),), {"y": torch.zeros(8)}, dynamic_shapes=shapes)


def test_arguments_that_fit_are_those_of_the_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    original = fx_onnx.ONNXProgram.__call__
    monkeypatch.setattr(fx_onnx.ONNXProgram, "__call__", lambda *a, **k: seen.append((a, k)) or original(*a, **k))
    fx_onnx.export(program(), (torch.ones(5, 3),), kwargs={"y": torch.ones(10)}, verify=True)
    (_, x), keywords = seen[0]  # the other calls are for other sizes
    assert (tuple(x.shape), tuple(keywords["y"].shape)) == ((5, 3), (10,))


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.ones(4, 4), torch.ones(8), r"^x.shape\[1\] is 4, but the ExportedProgram takes 3; .*capture the model"),
        (torch.ones(4, 3), torch.ones(9), r"^y.shape\[0\] is 9, but the ExportedProgram takes 8;"),
        (torch.ones(65, 3), torch.ones(130), r"^x.shape\[0\] is 65, but .* takes sizes from 3 to 64"),
        (
            torch.ones(4, 3).int(),
            torch.ones(8),
            r"^The argument 'x' is torch.int32 \[4, 3\], but .* torch.float32",
        ),
        (torch.ones(3), torch.ones(8), r"^The argument 'x' is torch.float32 \[3\], but"),
        (2.0, torch.ones(8), r"^The argument 'x' is 2.0, but"),
        ([torch.ones(4, 3)], torch.ones(8), r"^The argument 'x' is \[tensor"),
        ((), torch.ones(8), "takes 2 tensors and constants, but 1 are given"),
    ],
)
def test_other_arguments_are_refused(x: Any, y: Tensor, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        export(program(), (x,) if not isinstance(x, tuple) else x, kwargs={"y": y})


def test_another_structure_is_refused() -> None:
    with pytest.raises(ArgumentError, match="do not have the structure with which the ExportedProgram was captured"):
        export(program(), (torch.ones(4, 3), torch.ones(8)))
