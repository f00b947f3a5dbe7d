"""What the capture finds out about sizes that depend on data."""

from __future__ import annotations

import linecache

import pytest
import torch
from torch import Tensor

import fx_onnx
from tests.modules import FunctionModule

X, MASK = torch.randn(5, 4), torch.tensor([1, 0, 1, 1, 0]).bool()


class Rank(torch.nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows = x[mask].squeeze(0)
        return rows + rows.ndim


class ControlFlow(torch.nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows = x[mask].squeeze(0)
        return torch.cond(mask[0], lambda y: y * 2, lambda y: y.clone(), (x,)).sum() + rows


@pytest.mark.parametrize("kind", [Rank, ControlFlow])
def test_a_finding_names_the_line_of_the_squeeze(kind: type[torch.nn.Module]) -> None:
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="FX1203"):
        program = fx_onnx.export(kind(), (X, MASK))
    line = kind.forward.__code__.co_firstlineno + 1
    (found,) = program.findings
    assert found.text == (
        "The exported model may be wrong where a size that depends on data is 1, because the code removes the axis "
        f"for this size ({__file__}:{line}: {linecache.getline(__file__, line).strip()})."
    )


def test_a_stated_number_of_rows_gives_no_finding() -> None:
    def function(x: Tensor, mask: Tensor) -> Tensor:
        rows = x[mask]
        torch._check(rows.shape[0] >= 2)
        return rows.squeeze(0) + rows.squeeze(0).ndim

    assert not fx_onnx.export(FunctionModule(function), (X, MASK)).findings


class Mixed(torch.nn.Module):
    """Removes the axis of one row in five lines, and has a result that no run without values can compare."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows = x[mask]
        a = rows.squeeze(0)
        b = (rows + 1).squeeze(0)
        c = (rows + 2).squeeze(0)
        d = (rows + 3).squeeze(0)
        return torch.cond(mask[0], lambda y: y * 2, lambda y: y.clone(), (x,)).sum() + a + b + c + d


def test_many_lines_are_one_finding() -> None:
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="FX1203"):
        program = fx_onnx.export(Mixed(), (X, MASK))
    (found,) = program.findings
    assert "computes another shape for this size at 4 places, most often (" in found.text
    assert found.text.count(__file__) == 3
