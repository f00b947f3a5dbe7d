"""The mode of a module during a capture, and afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fx_onnx.capture.training_mode import in_mode
from fx_onnx.core.export_modes import TrainingMode


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
