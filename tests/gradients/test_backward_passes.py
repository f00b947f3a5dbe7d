"""A forward that computes gradients exports, with the values that autograd saves and torch.export does not see."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad

import fx_onnx
from fx_onnx.capture.capture import capture
from fx_onnx.gradients.backward_passes import record_backward
from fx_onnx.requests.request import parse_request
from tests.compare import assert_close


def autograd_grad(energy: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Computes the forces with torch.autograd.grad."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return -torch.autograd.grad(energy(x), x)[0]


def functional_grad(energy: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Computes the forces with torch.func.grad."""
    return -grad(energy)(x)


def backward(energy: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Computes the forces with backward."""
    with torch.enable_grad():
        x = x.detach().clone().requires_grad_()
        for weight in energy.parameters():
            weight.requires_grad_(False)
        energy(x).backward()
    return -x.grad


def penalty(energy: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Differentiates twice."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        (first,) = torch.autograd.grad(energy(x), x, create_graph=True)
        return torch.autograd.grad((first**2).sum(), x)[0]


class Energy(nn.Module):
    """(rows, 4) to a number; autograd saves results of most of the operators."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.SiLU(), nn.Softmax(-1))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 4) to a number."""
        return (self.layers(x) * x.sum(-1, keepdim=True).sigmoid()).sum()


class Forces(nn.Module):
    """The gradient of the energy."""

    def __init__(self, compute: Callable[..., Tensor]) -> None:
        super().__init__()
        self.energy, self.compute = Energy(), compute

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 4) to (rows, 4)."""
        return self.compute(self.energy, x)


@pytest.mark.parametrize("compute", [autograd_grad, functional_grad, backward, penalty])
def test_gradients_of_a_network(compute: Callable[..., Tensor]) -> None:
    torch.manual_seed(0)
    module = Forces(compute).eval()
    program = fx_onnx.export(module, (torch.randn(3, 4),), dynamic_shapes=({0: "rows"},))
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        assert_close(program(x), module(x).detach())


def test_the_decision_is_recorded() -> None:
    captured = capture(parse_request(Forces(autograd_grad).eval(), (torch.randn(3, 4),)))
    assert captured.decisions == (
        "repeated with intermediate values, because torch.export made a constant of a traced one",
    )


def test_nothing_is_recorded_afterwards() -> None:
    original = torch.autograd.grad
    with record_backward():
        assert torch.autograd.grad is not original
    assert torch.autograd.grad is original
