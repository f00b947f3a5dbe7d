"""Lookup of decompositions: the package's own take precedence over PyTorch's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fx_onnx.aten import decompose as lookup
from fx_onnx.aten.decompose import decompose, find_decomposition
from tests.aten.small_programs import CORE, captured, table, targets

aten = torch.ops.aten


pytestmark = pytest.mark.usefixtures("no_own_decompositions")


def test_own_decompositions_take_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    def ours(self: Tensor) -> Tensor:
        return self * torch.sigmoid(self) + 0.0

    monkeypatch.setitem(lookup.DECOMPOSITIONS, aten.silu.default, ours)
    program = captured(lambda x: torch.nn.functional.silu(x), torch.randn(3))
    decompose(program, table(*CORE))
    assert targets(program) == [aten.sigmoid.default, aten.mul.Tensor, aten.add.Tensor]


def test_only_composite_operators_are_traced_without_composites() -> None:
    found = find_decomposition(aten.silu.default)
    assert found is not None
    assert found.keeps_composites
    composite = find_decomposition(aten.linear.default)
    assert composite is not None
    assert not composite.keeps_composites
    assert find_decomposition(aten.geqrf.default) is None
    assert find_decomposition(len) is None
