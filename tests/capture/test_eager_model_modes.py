"""The mode of a module during a capture, and afterwards."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

import fx_onnx
from fx_onnx.capture.eager_model import has_mode, in_mode, mode_matters
from fx_onnx.requests.export_modes import TrainingMode


def test_a_module_of_torch_export_has_no_mode() -> None:
    """Its flag says training, and its eval() raises, so that a warning about the mode would help nobody."""
    captured = torch.export.export(nn.ReLU().eval(), (torch.ones(2),)).module()
    assert captured.training
    assert not has_mode(captured)
    assert has_mode(nn.ReLU())
    with warnings.catch_warnings():
        warnings.simplefilter("error", fx_onnx.OnnxExporterWarning)
        fx_onnx.export(captured, (torch.ones(2),))


def mixed() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(), nn.ReLU())).train()
    model[0].eval()
    return model


def flags(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (None, [True, False, True, True, True]),
        (TrainingMode.PRESERVE, [True, False, True, True, True]),
        (TrainingMode.EVAL, [False] * 5),
        (TrainingMode.TRAINING, [True] * 5),
    ],
)
def test_each_mode_and_the_way_back(mode: TrainingMode | None, expected: list[bool]) -> None:
    model = mixed()
    before = flags(model)
    with pytest.raises(KeyError), in_mode(model, mode):
        assert flags(model) == expected
        raise KeyError  # the modes come back after an error too
    assert flags(model) == before


def test_a_module_that_is_in_the_mode_already_is_not_asked() -> None:
    class Refuses(nn.Module):
        def train(self, mode: bool = True) -> nn.Module:
            raise NotImplementedError

    model = Refuses()
    model.training = False
    with in_mode(model, TrainingMode.EVAL):
        assert not model.training


def test_what_train_does_beyond_the_flag_is_undone() -> None:
    class Merges(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.zeros(())

        def train(self, mode: bool = True) -> nn.Module:
            self.weight += -1 if mode else 1
            return super().train(mode)

    model = Merges()
    with in_mode(model, TrainingMode.EVAL):
        assert model.weight == 1
    assert model.weight == 0


class Wrapper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


class DropsValues(Wrapper):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(self.inner(x), 0.5, self.training)


def with_own_forward() -> nn.Module:
    model = Wrapper()
    model.forward = lambda x: model.inner(x)  # type: ignore[method-assign]
    return model


def test_a_wrapper_around_a_model_in_evaluation_mode_causes_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", fx_onnx.OnnxExporterWarning)
        fx_onnx.export(Wrapper(), (torch.ones(2),))
    assert not mode_matters(nn.Sequential(Wrapper(), nn.Conv1d(1, 1, 1), nn.LayerNorm(2), nn.ReLU()))


class Decorated(nn.Module):
    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if getattr(self, "training") else x  # noqa: B009


LAYERS = (nn.Linear(2, 2), nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU()), nn.LayerNorm(2), nn.Embedding(2, 2))
SCRIPTS = (torch.jit.script(nn.Linear(2, 2)), torch.jit.trace(nn.Dropout().eval(), torch.ones(2)))


@pytest.mark.parametrize("layer", LAYERS + SCRIPTS, ids=lambda layer: type(layer).__name__)
def test_layers_that_are_the_same_in_both_modes(layer: nn.Module) -> None:
    assert not mode_matters(layer.train())


@pytest.mark.parametrize(
    "make",
    [
        DropsValues,
        with_own_forward,
        nn.Dropout,
        lambda: nn.BatchNorm1d(2),
        Decorated,
        lambda: Wrapper().train(),
        lambda: torch.jit.script(nn.Dropout()),
        lambda: torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.Dropout())),
    ],
)
def test_a_mode_that_may_matter(make: Callable[[], nn.Module]) -> None:
    assert mode_matters(make())
    assert not mode_matters(make().eval())
