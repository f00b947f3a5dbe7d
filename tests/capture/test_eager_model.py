"""The copy of the user's module runs as in the export, and the module does not change."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.export import Dim

import fx_onnx
from fx_onnx.capture.eager_model import copy_without_weights, eager_model
from fx_onnx.requests.export_modes import TrainingMode
from fx_onnx.requests.request import parse_request


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("count", torch.zeros(()))
        self.calls: list[bool] = []

    def forward(self, x: Tensor, factor: float = 1.0) -> Tensor:
        self.calls.append(self.training)
        self.count.add_(1)
        assert isinstance(factor, float)
        return x * self.weight * factor + fx_onnx.is_in_onnx_export()


def test_the_copy_runs_in_the_requested_mode() -> None:
    model = Model().eval()
    shapes = {"x": None, "factor": Dim.DYNAMIC}
    request = parse_request(model, (torch.ones(2), 3.0), dynamic_shapes=shapes, training=TrainingMode.TRAINING)
    eager = eager_model(request)
    assert eager is not None
    assert eager(*request.args).tolist() == [4, 4]  # the float is a float again, and the export flag is set
    assert dict(eager.named_buffers())["count"].item() == 1
    assert list(eager.modules()) == [eager.module]
    assert (model.calls, model.count.item(), model.training) == ([], 0, False)
    assert eager.module.calls == [True] and eager.module.weight is model.weight


def test_models_without_a_python_module() -> None:
    exported = torch.export.export(nn.ReLU(), (torch.ones(2),))
    assert eager_model(parse_request(exported)) is None
    assert eager_model(parse_request(torch.jit.script(nn.ReLU()), (torch.ones(2),))) is None

    class NoCopy(nn.ReLU):
        def __deepcopy__(self, memo: object) -> nn.Module:
            raise TypeError("a lock")

    assert eager_model(parse_request(NoCopy(), (torch.ones(2),))) is None


def test_tensors_that_are_attributes_are_shared() -> None:
    model = Model()
    model.table = model.weight * 2  # torch copies no tensor with a gradient function
    assert copy_without_weights(model).table is model.table
