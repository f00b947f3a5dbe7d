"""A Python number that the forward changes is a finding if the results depend on it."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

import fx_onnx


class Counting(nn.Module):
    def __init__(self, uses: bool) -> None:
        super().__init__()
        self.calls, self.uses = 0, uses

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls if self.uses else x * 2


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + 1


class Sizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.height = 3

    def forward(self, x: Tensor) -> Tensor:
        self.height = x.shape[0]
        return x.reshape(self.height, -1)


class Buffer(nn.Module):
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.count = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.count += 1
        return x * self.calls


def test_a_number_on_which_the_results_depend() -> None:
    model = Outer(Counting(uses=True)).eval()
    with pytest.warns(fx_onnx.OnnxExporterWarning, match=r"'calls' of inner, .*: self\.calls \+= 1\);.*FX1117"):
        program = fx_onnx.export(model, (torch.ones(2),))
    assert [finding.id for finding in program.findings] == ["FX1117"]
    (place,) = [finding.place for finding in program.findings]
    assert place.endswith(f"test_python_state.py:{Counting.forward.__code__.co_firstlineno + 1}")


@pytest.mark.parametrize("model", [Outer(Counting(uses=False)), Sizes(), Buffer()], ids=["counter", "sizes", "buffer"])
def test_a_number_that_changes_no_result(model: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", fx_onnx.OnnxExporterWarning)
        fx_onnx.export(model.eval(), (torch.ones(2, 4),), dynamic_shapes=({0: "n"},))


def test_weights_without_data() -> None:
    model = Outer(Counting(uses=True)).eval().to("meta")
    assert fx_onnx.export(model, (torch.ones(2, device="meta"),)).findings == []
