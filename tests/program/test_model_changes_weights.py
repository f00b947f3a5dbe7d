"""Weights get new data by name, all or none."""

import numpy as np
import pytest
import torch

import fx_onnx
from fx_onnx.messages.errors import ArgumentError, OnnxExporterWarning
from fx_onnx.program.model_changes import replace_weights


def test_tensors_and_arrays_replace_weights():
    program = fx_onnx.export(torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),))
    replace_weights(program.model, {"weight": torch.eye(2), "bias": np.array([1, 2], np.float32)})
    assert program(torch.tensor([[3.0, 4.0]]))[0].tolist() == [[4, 6]]


def test_no_weight_changes_if_one_does_not_fit():
    linear = torch.nn.Linear(2, 2).eval()
    program = fx_onnx.export(linear, (torch.ones(1, 2),))
    with pytest.raises(ArgumentError, match="'bias' is"):
        replace_weights(program.model, {"weight": torch.eye(2), "bias": torch.ones(3)})
    with pytest.raises(ArgumentError, match="must be a dense tensor or an array"):
        replace_weights(program.model, {"weight": 3})
    torch.testing.assert_close(program(torch.ones(1, 2))[0], linear(torch.ones(1, 2)).detach())
    with pytest.warns(OnnxExporterWarning, match="no weight named 'scale'"):
        replace_weights(program.model, {"scale": torch.eye(2)})
    with pytest.warns(OnnxExporterWarning, match="no weight named 'wieght'; did you mean 'weight'"):
        replace_weights(program.model, {"wieght": torch.eye(2)})
