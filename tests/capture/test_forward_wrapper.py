"""The wrapper gives torch.export facts about the forward, and restores the forward afterwards."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from fx_onnx.capture.forward_wrapper import wrap_forward
from tests.capture.captures import run, shapes
from tests.capture.sample_modules import Function, t


def test_arguments_of_var_keyword_are_inputs():
    kwargs = {"b": t(3), "a": t(3)}
    spec = {"a": {0: "n"}, "b": {0: "n"}, "x": {0: "n"}, "y": {0: "n"}}
    model = Function(lambda x, y, a, b: x + y + a - b)
    captured = run(model, t(3), t(3), kwargs=kwargs, dynamic_shapes=spec)
    assert captured.exported_program.graph_signature.user_inputs == ("x", "y", "b", "a")
    assert shapes(captured) == [("n",)] * 4
    assert "forward" not in vars(model)


def test_dims_with_one_name_are_equal_even_if_nothing_compares_them():
    captured = run(lambda x, y: (x + 1, y * 2), t(3), t(3), dynamic_shapes=({0: "n"}, {0: "n"}))
    assert shapes(captured) == [("n",)] * 2
    assert len(set(captured.symbol_names)) == 1


def test_the_forward_is_restored_after_an_error():
    model = Function(torch.relu)
    own = vars(model)["forward"] = model.forward
    with (
        pytest.raises(ZeroDivisionError),
        wrap_forward(model, {}, (), nullcontext, nullcontext(), register_outputs=True, strict=True),
    ):
        assert vars(model)["forward"] is not own
        raise ZeroDivisionError
    assert vars(model)["forward"] is own


def test_a_forward_that_needs_nothing_is_not_wrapped():
    model = Function(torch.relu)
    with wrap_forward(model, {}, (), nullcontext, nullcontext(), register_outputs=False, strict=True):
        assert "forward" not in vars(model)
