"""A capture leaves no attribute on the example tensors."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

import fx_onnx
from fx_onnx.torch_internals.dynamo_private import keep_marks
from tests.capture.sample_modules import Function, t


def test_attributes_are_restored():
    x = t(3)
    x.kept, x.changed = 1, 2
    with pytest.raises(KeyError), keep_marks(((x,), {"n": 1})):
        x.changed, x.new = 3, 4
        raise KeyError
    assert vars(x) == {"kept": 1, "changed": 2}


@pytest.mark.parametrize("dim", ["b", Dim.DYNAMIC])
def test_a_failed_export_leaves_no_dynamic_dim(dim):
    x = t(4, 4)
    with pytest.raises(fx_onnx.CaptureError):
        fx_onnx.export(Function(lambda a: a if int(a.sum()) > 2 else -a), (x,), dynamic_shapes=({0: dim},))
    assert list(fx_onnx.export(torch.nn.ReLU().eval(), (x,)).model.graph.inputs[0].shape) == [4, 4]


def fail_in_torch_export(x):
    with pytest.raises(Exception, match="data-dependent"):
        torch.export.export(Function(lambda a: a if a.sum() > 0 else -a), (x,), dynamic_shapes=({0: Dim.DYNAMIC},))


@pytest.mark.parametrize(
    "mark",
    [
        fail_in_torch_export,
        lambda x: torch._dynamo.mark_dynamic(x, 0),
        lambda x: torch._dynamo.maybe_mark_dynamic(x, 0),
        lambda x: torch._dynamo.mark_static(x, 1),
    ],
)
def test_marks_of_others_have_no_effect_and_stay(mark):
    """dynamic_shapes alone says which dims are dynamic."""
    x = t(4, 4)
    mark(x)
    marks = dict(vars(x))
    assert marks
    for shapes, expected in ((None, [4, 4]), (({1: "n"},), [4, "n"])):
        program = fx_onnx.export(torch.nn.ReLU().eval(), (x,), dynamic_shapes=shapes)
        assert list(program.model.graph.inputs[0].shape) == expected
        assert vars(x) == marks
