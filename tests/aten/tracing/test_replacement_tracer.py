"""Traces of decompositions: functional graphs, with constants under new names."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fx_onnx.aten import decompose as lookup
from fx_onnx.aten.decompose import decompose
from tests.aten.small_programs import CORE, captured, run, table
from tests.compare import assert_close

aten = torch.ops.aten


pytestmark = pytest.mark.usefixtures("no_own_decompositions")


def test_a_decomposition_may_write_to_its_own_values(monkeypatch: pytest.MonkeyPatch) -> None:
    def ours(self: Tensor) -> Tensor:
        result = self * 1.0
        result.add_(self)
        return result

    monkeypatch.setitem(lookup.DECOMPOSITIONS, aten.silu.default, ours)
    program = captured(lambda x: torch.nn.functional.silu(x), torch.randn(3))
    decompose(program, table(*CORE))
    assert_close(run(program, torch.ones(3)), [torch.ones(3) * 2])


def test_a_constant_made_by_a_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    def ours(self: Tensor) -> Tensor:
        return self + torch.tensor([1.0, 2.0, 3.0])

    monkeypatch.setitem(lookup.DECOMPOSITIONS, aten.silu.default, ours)
    program = captured(lambda x: torch.nn.functional.silu(x), torch.randn(3))
    decompose(program, table(*CORE, aten.lift_fresh_copy.default, aten.detach.default))
    assert_close(run(program, torch.zeros(3)), [torch.tensor([1.0, 2.0, 3.0])])
