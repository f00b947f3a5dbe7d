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


class InDict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state: dict[str, int] = {}

    def forward(self, x: Tensor) -> Tensor:
        self.state["calls"] = self.state.get("calls", 0) + 1
        return x * self.state["calls"]


class InList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = [0, 3.0]

    def forward(this, x: Tensor) -> Tensor:
        this.state[0] += 1
        return x * this.state[0]


class Appended(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.state.append(2)
        return x * len(self.state)


class InTuple(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = (0, "name")

    def forward(self, x: Tensor) -> Tensor:
        self.state = (self.state[0] + 1, "name")
        return x * self.state[0]


class Recorded(nn.Module):
    """Stores sizes and results, on which no later result depends."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[str, int] = {}
        self.results: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.sizes["rows"] = x.shape[0]
        self.results.append(x)
        return x.reshape(self.sizes["rows"], -1)


def test_a_number_on_which_the_results_depend() -> None:
    model = Outer(Counting(uses=True)).eval()
    with pytest.warns(
        fx_onnx.OnnxExporterWarning, match=r"'calls' of inner \(Counting\), on .*: self\.calls \+= 1\);.*FX1117"
    ):
        program = fx_onnx.export(model, (torch.ones(2),))
    assert [finding.id for finding in program.findings] == ["FX1117"]
    (place,) = [finding.place for finding in program.findings]
    assert place.endswith(f"test_python_state.py:{Counting.forward.__code__.co_firstlineno + 1}")


@pytest.mark.parametrize("model", [InDict, InList, Appended, InTuple])
def test_a_number_in_a_list_a_tuple_or_a_dict(model: type[nn.Module]) -> None:
    with pytest.warns(fx_onnx.OnnxExporterWarning, match=r"changes a Python number in 'state' of"):
        program = fx_onnx.export(Outer(model()).eval(), (torch.ones(2),))
    assert [finding.id for finding in program.findings] == ["FX1117"]
    (place,) = [finding.place for finding in program.findings]
    assert place.endswith(f"test_python_state.py:{model.forward.__code__.co_firstlineno + 1}")


@pytest.mark.parametrize(
    "model",
    [Outer(Counting(uses=False)), Sizes(), Buffer(), Recorded()],
    ids=["counter", "sizes", "buffer", "sizes in a dict"],
)
def test_a_number_that_changes_no_result(model: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", fx_onnx.OnnxExporterWarning)
        fx_onnx.export(model.eval(), (torch.ones(2, 4),), dynamic_shapes=({0: "n"},))


def test_weights_without_data() -> None:
    model = Outer(Counting(uses=True)).eval().to("meta")
    assert fx_onnx.export(model, (torch.ones(2, device="meta"),)).findings == []
