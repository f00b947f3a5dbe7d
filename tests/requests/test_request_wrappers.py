"""A wrapper that only runs a module is exported as this module: torch.compile, DataParallel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.requests.request import parse_request
from tests.compare import assert_close


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(3, 4), nn.Dropout()

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.dropout(self.linear(x) * scale)


def test_a_data_parallel_module() -> None:
    model, x, scale = nn.DataParallel(Net()).eval(), torch.randn(5, 3), torch.tensor(2.0)
    program = fx_onnx.export(model, (x[:2],), kwargs={"scale": scale}, dynamic_axes={"x": {0: "n"}}, verify=True)
    assert [each.name for each in program.model.graph.inputs] == ["x", "scale"]
    assert list(program.model.graph.initializers) == list(model.state_dict())
    assert_close(program(x, scale), model(x, scale=scale))
    assert not model.training


def test_the_mode_is_put_back() -> None:
    model = nn.DataParallel(Net()).train()
    fx_onnx.export(model, (torch.randn(2, 3), torch.ones(())), training=fx_onnx.TrainingMode.EVAL)
    assert model.training
    assert model.module.dropout.training


def test_hooks_of_the_parallel_module_compute() -> None:
    model, x, scale = nn.DataParallel(Net()).eval(), torch.randn(2, 3), torch.tensor(2.0)
    model.register_forward_hook(lambda module, args, result: result * 3)
    assert_close(fx_onnx.export(model, (x, scale))(x, scale), model(x, scale))


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return x + self.count


def test_a_copy_of_the_replica_has_its_own_buffers() -> None:
    """Otherwise the run for the verification would change the user's module."""
    model = nn.DataParallel(Counts()).eval()
    fx_onnx.export(model, (torch.ones(2),), verify=True)
    assert model.module.count == 0


def test_a_compiled_module() -> None:
    net, x, scale = Net().eval(), torch.randn(5, 3), torch.tensor(2.0)
    program = fx_onnx.export(torch.compile(net), (x[:2], scale), dynamic_shapes={"x": {0: "n"}, "scale": None})
    assert [each.name for each in program.model.graph.inputs] == ["x", "scale"]
    assert list(program.model.graph.initializers) == list(net.state_dict())
    assert_close(program(x, scale), net(x, scale))


@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel, lambda net: nn.DataParallel(torch.compile(net))])
def test_messages_name_the_class_of_the_user(wrap: Callable[[nn.Module], nn.Module]) -> None:
    with pytest.warns(fx_onnx.OnnxExporterWarning, match=r"^Net is in training mode"):
        fx_onnx.export(wrap(Net()), (torch.randn(2, 3), torch.ones(())))


@pytest.mark.parametrize("wrap", [nn.DataParallel, torch.compile])
def test_a_lazy_module_inside(wrap: Callable[[nn.Module], nn.Module]) -> None:
    with pytest.raises(fx_onnx.ArgumentError, match=r"weight' of the model is not initialized"):
        parse_request(wrap(nn.LazyLinear(2)), torch.ones(2, 3))
