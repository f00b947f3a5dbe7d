"""A capture leaves no attribute on the example tensors."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

import fx_onnx
from fx_onnx.capture.example_marks import keep_marks
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
        fx_onnx.export(Function(lambda a: a if a.sum() > 0 else -a), (x,), dynamic_shapes=({0: dim},))
    assert list(fx_onnx.export(torch.nn.ReLU().eval(), (x,)).model.graph.inputs[0].shape) == [4, 4]
