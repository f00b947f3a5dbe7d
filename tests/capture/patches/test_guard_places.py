"""Each guard has the line of the model's code that caused it, in both modes of torch.export."""

from __future__ import annotations

import math

import pytest
import torch
from torch.export import Dim

from fx_onnx.capture.dynamic_dims import guard_place
from fx_onnx.capture.patches.guard_places import PATCHES
from fx_onnx.capture.patches.patching import apply_patches
from fx_onnx.torch_internals.guard_private import GuardOrigin, guard_origin
from fx_onnx.torch_internals.torch_private import size_oblivious
from tests.capture.sample_modules import Function


class Positions(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.p = torch.nn.Parameter(torch.zeros(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.p


def origins(model: torch.nn.Module, strict: bool) -> list[tuple[str, GuardOrigin]]:
    with size_oblivious(), apply_patches(PATCHES):
        program = torch.export.export(model, (torch.zeros(16, 8),), dynamic_shapes=({0: Dim.AUTO},), strict=strict)
    values = (node.meta.get("val") for node in program.graph.find_nodes(op="placeholder"))
    shape_env = next(value.fake_mode.shape_env for value in values if isinstance(value, torch.Tensor))
    return [(guard_place(guard), guard_origin(guard)) for guard in shape_env.guards]


@pytest.mark.parametrize("strict", [False, True])
def test_a_guard_of_torch_has_the_line_of_the_model(strict: bool) -> None:
    line = Positions.forward.__code__.co_firstlineno + 1
    found = origins(Positions(), strict)
    assert found
    assert {place for place, _ in found} == {f"({__file__}:{line}: return x + self.p)"}


def test_lines_outside_of_the_model_are_not_named() -> None:
    padded = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Flatten(0), torch.nn.Linear(256, 1))
    found = origins(padded, strict=False)
    assert found
    assert {place for place, _ in found} == {""}


class Branch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 3 else x


@pytest.mark.parametrize("strict", [False, True])
def test_a_branch_of_the_model_does_not_raise(strict: bool) -> None:
    found = [origin for place, origin in origins(Branch(), strict) if "return x * 2 if" in place]
    assert found
    assert {(origin.frame.filename, origin.frame.name) for origin in found} == {(__file__, "forward")}
    assert {(origin.raises, origin.converts, origin.call) for origin in found} == {(False, False, None)}


@pytest.mark.parametrize(
    ("function", "raises", "converts", "call"),
    [
        (lambda x: x if x.shape[0] > 3 else x + 1, False, False, None),
        (lambda x: x * math.log(x.shape[0]), False, True, None),
        (lambda x: x * torch.ones(int(x.shape[0] * 0.5), 1)[0], False, True, None),
        (lambda x: x.expand(16, 8), True, False, "expand"),
        (lambda x: torch.nn.functional.adaptive_avg_pool1d(x[None], x.shape[0]), False, True, "adaptive_avg_pool1d"),
    ],
)
def test_the_origin_of_a_guard(function: object, raises: bool, converts: bool, call: str | None) -> None:
    found = [
        (origin.raises, origin.converts, origin.call and origin.call[0].__name__)
        for _, origin in origins(Function(function), strict=False)
    ]
    assert (raises, converts, call) in found


def test_code_without_a_file_has_the_line_of_its_caller() -> None:
    names: dict[str, object] = {}
    exec("def branch(x):\n    return x if x.shape[0] == 1 else x + 1", names)
    assert {__file__ in place for place, _ in origins(Function(names["branch"]), strict=False)} == {False}
