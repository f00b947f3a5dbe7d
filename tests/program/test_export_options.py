"""The options of an export are checked when they are made."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fx_onnx import ArgumentError
from fx_onnx.program.export_options import ExportOptions


@pytest.mark.parametrize("wanted", [1, set(), {"Linear"}, {torch.Tensor}, [nn.Linear, 3]])
def test_modules_as_functions_must_be_module_classes(wanted: object) -> None:
    with pytest.raises(ArgumentError, match="must be a bool or a set of module classes"):
        ExportOptions(modules_as_functions=wanted)  # type: ignore[arg-type]


def test_modules_as_functions_need_an_opset_with_functions() -> None:
    ExportOptions(modules_as_functions=True, opset=15)
    with pytest.raises(ArgumentError, match="needs opset 15 or above, not 14"):
        ExportOptions(modules_as_functions=True, opset=14)
