"""A layer that converts its input to fastai's subclass of Tensor exports; benchmarks/clients.py has fastai itself."""

import sys
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from tests.compare import assert_close


class TensorBase(Tensor):
    """Has the constructor of fastai's class."""

    @torch.compiler.disable  # strict mode cannot trace a DynamicUnet either
    def __new__(cls, x: Tensor) -> "TensorBase":
        return x.as_subclass(cls)


class ToTensorBase(nn.Module):
    """Converts as fastai's layer does."""

    def forward(self, x: Tensor) -> Tensor:
        return TensorBase(x)


def test_a_conversion_to_tensor_base(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = ModuleType("fastai.layers")
    layers.ToTensorBase = ToTensorBase  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fastai.layers", layers)
    model = nn.Sequential(nn.Linear(3, 4), ToTensorBase(), nn.ReLU()).eval()
    program = fx_onnx.export(model, (torch.randn(2, 3),), dynamic_shapes=({0: "batch"},), verbose=False)
    x = torch.randn(5, 3)
    assert_close(program(x), model(x).as_subclass(Tensor))
    assert type(model(x)) is TensorBase, "the patch is removed"
