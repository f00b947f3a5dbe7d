"""What the capture finds out about sizes that depend on data."""

from __future__ import annotations

import linecache

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop

import fx_onnx
from tests.modules import FunctionModule

X, MASK = torch.randn(5, 4), torch.tensor([1, 0, 1, 1, 0]).bool()


class Rank(torch.nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows = x[mask].squeeze(0)
        return rows + rows.ndim


def looped(x: Tensor) -> Tensor:
    """Computes a sum in a loop that no run without values can compare."""
    return while_loop(lambda n, total: n < 2, lambda n, total: (n + 1, total * 2), (torch.tensor(0), x.sum()))[1]


class Loop(torch.nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows = x[mask].squeeze(0)
        return looped(x) + rows


class Condition(torch.nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows = x[mask].squeeze(0)
        return torch.cond(mask[0], lambda y: y * 2, lambda y: y.clone(), (x,)).sum() + rows


def test_both_branches_of_a_condition_are_compared() -> None:
    program = fx_onnx.export(Condition(), (X, MASK))
    assert not program.findings
    for mask in (MASK, torch.arange(5) == 2, torch.zeros(5).bool()):
        torch.testing.assert_close(program(X, mask)[0], Condition()(X, mask))


@pytest.mark.parametrize("kind", [Rank, Loop])
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
        return looped(x) + a + b + c + d


def test_many_lines_are_one_finding() -> None:
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="FX1203"):
        program = fx_onnx.export(Mixed(), (X, MASK))
    (found,) = program.findings
    assert "computes another shape for this size at 4 places, most often (" in found.text
    assert found.text.count(__file__) == 3
