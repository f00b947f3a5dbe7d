"""Conditions and numbers that follow from weights are known in a trace; all others are refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from tests.compare import assert_close


class Weights(nn.Module):
    def __init__(self, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("ready", torch.tensor(True))
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("kinds", torch.tensor([True, False]))
        self.scale, self.constant = nn.Parameter(torch.tensor([2.5])), torch.tensor(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def one_for_each_kind(m: Any, x: Tensor) -> Tensor:
    for kind in m.kinds:
        x = x + 1 if kind else x * 2
    return x


def loops_and_branches_on_sizes(m: Any, x: Tensor) -> Tensor:
    for index in range(int(m.count)):
        x = x * 2 if m.count > index + 1 else x.reshape(-1, x.shape[1])
    return x if x.shape[0] > 5 or m.ready else x - 1


def count_of_three_writes(m: Any, x: Tensor) -> Tensor:
    m.count.view(1).add_(5)
    return x + 1 if m.count > 3 else x


def ready_afterwards(m: Any, x: Tensor) -> Tensor:
    result = x + 1 if m.ready else x
    m.ready.fill_(True)
    return result


def counts(m: Any, x: Tensor) -> Tensor:
    result = x + int(m.count)
    m.count = m.count + 1
    return result


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: x + 1 if m.ready else x,
        lambda m, x: x + 1 if m.count == 3 and not m.kinds.all() else x,
        lambda m, x: x[:, : int(m.count)],
        lambda m, x: x + float(m.scale.sqrt()),
        lambda m, x: x + 1 if m.scale.item() > 0 else x,
        lambda m, x: x * m.kinds.tolist()[0],
        lambda m, x: x + 1 if m.constant and m.constant == 4 else x,
        lambda m, x: x + 1 if torch.equal(m.count, m.constant - 1) else x,
        one_for_each_kind,
        loops_and_branches_on_sizes,
    ],
)
def test_a_value_of_weights(function: Any) -> None:
    model = Weights(function).eval()
    program = fx_onnx.export(model, (torch.randn(4, 6),), dynamic_shapes=({0: "n"},))
    assert str(program.dims) == "n: any" and not program.findings
    for rows in (1, 4, 7):
        x = torch.randn(rows, 6)
        assert_close(program(x), (model(x),))


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: x + 1 if (m.count + x.sum()) > 0 else x,
        lambda m, x: x + 1 if (m.scale + torch.rand(1)) > 0 else x,
        count_of_three_writes,
    ],
)
def test_a_value_of_more_than_weights_depends_on_data(function: Any) -> None:
    program = fx_onnx.export(Weights(function).eval(), (torch.randn(4, 6),))
    assert "If" in [node.op_type for node in program.model.graph]


@pytest.mark.parametrize(("function", "name"), [(ready_afterwards, "ready"), (counts, "count")])
def test_a_weight_that_the_forward_changes_is_refused(function: Any, name: str) -> None:
    with pytest.raises(fx_onnx.CaptureError, match=rf"branches on the value of '{name}', .*before the export"):
        fx_onnx.export(Weights(function).eval(), (torch.randn(4, 6),))


def test_weights_without_values_tell_none() -> None:
    with torch.device("meta"):
        model = copy.deepcopy(Weights(lambda m, x: x + 1 if m.ready else x)).eval()
    program = fx_onnx.export(model, (torch.randn(4, 6, device="meta"),))
    assert "If" in [node.op_type for node in program.model.graph]


def test_the_address_of_a_weight_is_a_key() -> None:
    """It is that of the module, also of a large weight."""

    class Looked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(300, 300)
            self.scales = {weight.data_ptr(): 2.0 + weight.ndim for weight in self.linear.parameters()}

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) * self.scales[self.linear.weight.data_ptr()]

    module, x = Looked().eval(), torch.randn(2, 300)
    assert_close(fx_onnx.export(module, (x,))(x), module(x))


class Scaled:
    """Is no tensor, and functions of torch call it."""

    def __init__(self, value: Tensor, scale: Tensor) -> None:
        self.value, self.scale = value, scale

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the function with the value, if the scale is 1."""
        scaled = args[0]
        is_one = torch.allclose(scaled.scale, torch.ones(1))
        return func(scaled.value if is_one else scaled.value * scaled.scale, *args[1:])


def test_a_class_with_functions_of_torch_of_its_own_reads_weights() -> None:
    class Uses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.full((1,), 3.0))

        def forward(self, x: Tensor) -> Any:
            return torch.relu(Scaled(x, self.scale))  # type: ignore[arg-type]

    module, x = Uses().eval(), torch.randn(2, 3)
    program = fx_onnx.export(module, (x,))
    assert_close(program(x), module(x))
    assert "If" not in [node.op_type for node in program.model.graph]
