"""What the capture knows of TorchScript."""

from __future__ import annotations

import torch
from torch import nn

from fx_onnx.requests.scripts import (
    InterpretedModule,
    has_scripts,
    interpreted_submodules,
    is_script,
    numbers_became_buffers,
)


def test_scripts_are_recognized() -> None:
    assert is_script(torch.jit.script(nn.ReLU()))
    assert not is_script(nn.ReLU())


def test_a_model_without_scripts_needs_no_room() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with interpreted_submodules(model):
        assert [type(each) for each in model] == [nn.Linear, nn.ReLU]
    assert not has_scripts(model)
    assert not numbers_became_buffers(model)


def test_numbers_that_changed_become_buffers() -> None:
    class Counting(InterpretedModule):
        def promote_numbers(self) -> None:
            self.changed_numbers.clear()

    script = Counting()
    script.changed_numbers = {"count"}
    model = nn.Sequential(script)
    assert has_scripts(model)
    assert numbers_became_buffers(model)
    assert not numbers_became_buffers(model)
