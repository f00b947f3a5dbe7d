"""BatchNormalization and Dropout in their training forms, for training=TrainingMode.TRAINING."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.requests.export_modes import TrainingMode
from tests.compare import assert_close


def export(model: nn.Module, *args: Any, **options: Any) -> fx_onnx.ONNXProgram:
    return fx_onnx.export(model, args, training=TrainingMode.TRAINING, **options)


def operators(program: fx_onnx.ONNXProgram) -> list[str]:
    return [node.op_type for node in program.model.graph]


@pytest.mark.parametrize(
    ("norm", "x", "spec"),
    [
        (nn.BatchNorm2d(3), torch.randn(2, 3, 4, 5), None),
        (nn.BatchNorm2d(3, momentum=0.3, affine=False), torch.randn(2, 3, 4, 5), None),
        (nn.BatchNorm1d(3), torch.randn(6, 3), {"input": {0: "batch"}}),
        (nn.BatchNorm2d(3).double(), torch.randn(2, 3, 4, 5).double(), {"input": {2: "rows"}}),
    ],
)
def test_batch_norm_uses_the_batch_and_updates_the_statistics(norm: nn.Module, x: Tensor, spec: Any) -> None:
    norm = copy.deepcopy(norm).eval()
    program = export(norm, x, dynamic_shapes=spec)
    (node,) = [node for node in program.model.graph if node.op_type == "BatchNormalization"]
    assert node.attributes["training_mode"].value == 1
    assert not norm.training
    names = [str(value.name) for value in program.model.graph.outputs]
    found = dict(zip(names, program(x), strict=True))
    expected = norm.train()(x)
    assert_close(found[names[0]], expected)
    for name, buffer in norm.named_buffers():
        assert_close(found[f"{name}_out"], buffer)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.norm(x) * 2 + 1)


@pytest.mark.parametrize("make", [lambda: nn.BatchNorm1d(3), Twice])
def test_batch_norm_starts_each_run_with_the_same_statistics(make: Callable[[], nn.Module]) -> None:
    """ONNX Runtime writes over the default values of the statistics if the node reads them."""
    module, x = make(), torch.randn(6, 3) + 1
    program = export(copy.deepcopy(module), x)
    expected = module.train()(x)
    for _ in range(3):
        found = program(x)
        assert_close(found[0], expected)
        for tensor, buffer in zip(found[1:], module.buffers(), strict=True):
            assert_close(tensor, buffer)


@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_without_running_statistics_gives_the_same_numbers_in_each_run(affine: bool) -> None:
    norm, x = nn.BatchNorm2d(3, track_running_stats=False, affine=affine), torch.randn(2, 3, 4, 5)
    program = export(norm, x)
    for _ in range(3):
        assert_close(program(x)[0], norm(x))


def test_weights_stay_what_they_are_although_a_constant_is_folded() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)
            self.weight = nn.Parameter(torch.randn(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.norm(self.conv(x)) @ self.weight.exp() + torch.arange(4) * 2
            return result

    program = export(Net(), torch.randn(2, 3, 6, 6))
    assert {"BatchNormalization", "Exp"} <= set(operators(program))
    assert "Range" not in operators(program)
    assert set(Net().state_dict()) - set(program.model.graph.initializers) == set()


def test_a_frozen_batch_norm_keeps_its_inference_form() -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.batch_norm(x, self.norm.running_mean, self.norm.running_var)

    model, x = Frozen(), torch.randn(4, 3)
    program = export(model, x)
    assert operators(program) == ["BatchNormalization"]
    assert "training_mode" not in program.model.graph[0].attributes
    assert_close(program(x)[0], model(x))


@pytest.mark.parametrize("opset", [18, 20, 22])
def test_dropout_drops_in_the_runtime(opset: int) -> None:
    x = torch.ones(100, 100)
    program = export(nn.Sequential(nn.ReLU(), nn.Dropout(0.25), nn.ReLU()), x, opset_version=opset)
    assert operators(program) == ["Relu", "Dropout", "Relu"]
    (found,) = program(x)
    assert set(found.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert abs((found == 0).float().mean().item() - 0.25) < 0.05


@pytest.mark.parametrize(("p", "expected"), [(0.0, 1.0), (1.0, 0.0)])
def test_dropout_of_nothing_and_of_everything(p: float, expected: float) -> None:
    program = export(nn.Sequential(nn.Dropout(p), nn.ReLU()), torch.ones(3))
    assert "Dropout" not in operators(program)
    assert program(torch.ones(3))[0].tolist() == [expected] * 3


def test_attention_keeps_its_dropout() -> None:
    class Attention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5 if self.training else 0.0)

    assert "Dropout" in operators(export(Attention().eval(), torch.randn(1, 2, 5, 8)))
