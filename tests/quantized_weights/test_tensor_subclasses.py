"""Unwrapping of weights that are tensor subclasses. A class with torchao's protocol replaces torchao here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.messages.errors import CaptureError, TranslationError
from tests.compare import assert_close


class Scaled(torch.Tensor):
    """A quantized tensor, the product of integers and a scale, with the protocol of torchao's tensors."""

    qdata: Tensor
    scale: Tensor

    def __new__(cls, qdata: Tensor, scale: Tensor) -> Scaled:
        return torch.Tensor._make_wrapper_subclass(cls, qdata.shape, dtype=torch.float32)

    def __init__(self, qdata: Tensor, scale: Tensor) -> None:
        self.qdata, self.scale = qdata, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["qdata", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Tensor], meta: Any, size: Any, stride: Any) -> Scaled:
        return cls(inner["qdata"], inner["scale"])

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is nn.functional.linear:
            x, weight, *bias = args
            return nn.functional.linear(x, weight.qdata.float(), *bias) * weight.scale
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.detach.default:
            return cls(args[0].qdata, args[0].scale)
        raise NotImplementedError(f"Scaled has no {function}")


def scaled(rows: int, columns: int) -> nn.Parameter:
    data = torch.randint(-128, 128, (rows, columns), dtype=torch.int8)
    return nn.Parameter(Scaled(data, torch.tensor(1 / 64)), requires_grad=False)


class Net(nn.Module):
    """Two layers that share a weight, and one with another weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = (nn.Linear(4, 4, bias=False) for _ in range(3))
        self.first.weight = self.second.weight = scaled(4, 4)
        self.last.weight = scaled(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.second(torch.relu(self.first(x)))))


def test_the_inner_tensors_become_the_weights() -> None:
    module, x = Net().eval(), torch.randn(2, 4)
    program = fx_onnx.export(module, (x,), optimize=False, verify=True)
    assert_close(program(x), module(x))
    stored = {n: v.dtype.name for n, v in program.model.graph.initializers.items() if v.dtype is not None}
    shared = next(name.partition(".")[0] for name in stored if not name.startswith("last"))
    assert shared in ("first", "second")
    assert stored == {
        f"{shared}.weight.qdata": "INT8", f"{shared}.weight.scale": "FLOAT",
        "last.weight.qdata": "INT8", "last.weight.scale": "FLOAT",
    }  # fmt: skip
    assert all(difference.ok for difference in program.verify(x).values)


def test_the_inner_tensors_can_be_replaced() -> None:
    module, other, x = Net().eval(), Net().eval(), torch.randn(2, 4)
    program = fx_onnx.export(module, (x,))
    program.apply_weights(other.state_dict())
    assert_close(program(x), other(x))


def test_an_input_that_is_a_subclass_is_refused() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor, weight: Tensor) -> Tensor:
            return nn.functional.linear(x, weight)

    with pytest.raises((TranslationError, CaptureError), match="Scaled"):
        fx_onnx.export(Model().eval(), (torch.randn(2, 4), scaled(4, 4).data))
