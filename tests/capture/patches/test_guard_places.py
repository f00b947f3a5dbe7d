"""Each guard has the line of the model's code that caused it, in both modes of torch.export."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from fx_onnx.capture.dynamic_dims import guard_place
from fx_onnx.capture.patches.guard_places import record_guard_places
from fx_onnx.capture.patches.size_comparisons import record_size_comparisons
from fx_onnx.core.guard_private import guard_location


class Positions(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.p = torch.nn.Parameter(torch.zeros(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.p


def places(model: torch.nn.Module, strict: bool) -> list[str]:
    with record_guard_places():
        program = torch.export.export(model, (torch.zeros(16, 8),), dynamic_shapes=({0: Dim.AUTO},), strict=strict)
    values = (node.meta.get("val") for node in program.graph.find_nodes(op="placeholder"))
    shape_env = next(value.fake_mode.shape_env for value in values if isinstance(value, torch.Tensor))
    return [guard_place(guard) for guard in shape_env.guards]


@pytest.mark.parametrize("strict", [False, True])
def test_a_guard_of_torch_has_the_line_of_the_model(strict: bool) -> None:
    line = Positions.forward.__code__.co_firstlineno + 1
    assert places(Positions(), strict) == [f"({__file__}:{line}: return x + self.p)"]


def test_lines_outside_of_the_model_are_not_named() -> None:
    padded = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Flatten(0), torch.nn.Linear(256, 1))
    found = places(padded, strict=False)
    assert found
    assert set(found) == {""}


@pytest.mark.parametrize("strict", [False, True])
def test_a_branch_of_the_model_is_no_precondition_of_torch(strict: bool) -> None:
    class Branch(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.shape[0] > 3 else x

    with record_guard_places(), record_size_comparisons():  # which skips the frames of both
        program = torch.export.export(Branch(), (torch.zeros(16, 8),), dynamic_shapes=({0: Dim.AUTO},), strict=strict)
    shape_env = next(iter(program.graph.nodes)).meta["val"].fake_mode.shape_env
    (location,) = [guard_location(guard) for guard in shape_env.guards if "> 3" in str(guard.expr)]
    assert location is not None
    assert (location.filename, location.name) == (__file__, "forward")
