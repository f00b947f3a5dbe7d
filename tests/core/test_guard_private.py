"""Tests of the private names of guards: each exists in this torch, and a missing one has the documented effect."""

from __future__ import annotations

import traceback
from types import SimpleNamespace

import pytest
import torch
from torch.export import Dim

from fx_onnx.core import guard_private


class Even(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] % 2 == 0 else x


def test_facts_of_guards() -> None:
    program = torch.export.export(Even(), (torch.zeros(4, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))
    shape_env = next(iter(program.graph.nodes)).meta["val"].fake_mode.shape_env
    (symbol,) = guard_private.symbols_of_sources(shape_env).values()
    assert list(guard_private.symbols_of_sources(shape_env)) == ["L['x'].size()[0]"]
    assert guard_private.names_of_sources(shape_env) == guard_private.names_of_sources(None) == {}
    (guard,) = [guard for guard in shape_env.guards if str(symbol) in str(guard.expr) and "Mod" in str(guard.expr)]
    location = guard_private.guard_location(guard)
    assert location is not None
    assert location.name == "forward"
    assert guard_private.guard_user_frame(guard) is None
    frame = traceback.FrameSummary("model.py", 3, "forward")
    guard_private.mark_guard_place(guard.sloc, frame)
    assert guard_private.guard_user_frame(guard) is frame


def test_the_method_that_records_places_exists() -> None:
    found = guard_private.guard_recorder()
    assert found is not None
    assert callable(getattr(*found))
    assert list(guard_private.traced_frames()) == []


def test_the_function_for_bounds_of_slices_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    found = guard_private.slice_bound_function()
    assert found is not None
    assert [getattr(*found)(5, index) for index in (2, 9, -2, -9)] == [2, 5, 3, 0]
    monkeypatch.delattr(*found)
    assert guard_private.slice_bound_function() is None


def test_facts_of_guards_without_the_attributes() -> None:
    assert guard_private.symbols_of_sources(SimpleNamespace()) == {}
    assert guard_private.guard_location(SimpleNamespace()) is None
    assert guard_private.guard_user_frame(SimpleNamespace()) is None


def test_only_the_location_of_the_interpreter_is_replaced() -> None:
    frame, interpreter = traceback.FrameSummary("model.py", 3, "forward"), torch._dynamo.variables.tensor.__file__
    for filename, replaced in ((interpreter, True), (torch.nn.functional.__file__, False)):
        place = SimpleNamespace(framework_loc=traceback.FrameSummary(filename, 1, "evaluate_expr"))
        guard_private.replace_interpreter_location(place, frame)
        assert (place.framework_loc is frame) is replaced
    guard_private.replace_interpreter_location(object(), frame)


def test_the_value_of_the_example() -> None:
    class Half(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            values.extend(map(guard_private.example_value, (x.shape[0], x.shape[0] / 2, x.sum().item())))
            return x + 1

    values: list[float | None] = []
    torch.export.export(Half(), (torch.zeros(5),), dynamic_shapes=({0: Dim.AUTO},))
    assert values == [5, 2.5, None]
