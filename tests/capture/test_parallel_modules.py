"""A parallel module is exported as its module, with its own names of weights."""

import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.capture.parallel_modules import is_parallel
from tests.compare import assert_close


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(3, 4), nn.Dropout()

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.dropout(self.linear(x) * scale)


def test_a_data_parallel_module() -> None:
    model, x, scale = nn.DataParallel(Net()).eval(), torch.randn(5, 3), torch.tensor(2.0)
    assert is_parallel(model)
    assert not is_parallel(model.module)
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
