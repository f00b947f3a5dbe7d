"""The two enumerations, and the members of torch.onnx that mean the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fx_onnx.messages.errors import ArgumentError
from fx_onnx.requests.export_modes import OperatorExportTypes, TrainingMode, check_mode

PAIRS = [(TrainingMode, torch.onnx.TrainingMode), (OperatorExportTypes, torch.onnx.OperatorExportTypes)]


@pytest.mark.parametrize(("own", "of_torch"), PAIRS)
def test_the_members_and_numbers_are_those_of_torch(own: Any, of_torch: Any) -> None:
    assert {each.name: each.value for each in own} == {name: int(each) for name, each in of_torch.__members__.items()}


@pytest.mark.parametrize(("own", "of_torch"), PAIRS)
def test_each_form_of_a_member(own: Any, of_torch: Any) -> None:
    for each in own:
        for form in (each, getattr(of_torch, each.name), each.value):
            assert check_mode("training", form, own) is each
    assert check_mode("training", None, own) is None


def test_the_booleans_of_torch_before_1_6() -> None:
    assert check_mode("training", True, TrainingMode) is TrainingMode.TRAINING
    assert check_mode("training", False, TrainingMode) is TrainingMode.EVAL


@pytest.mark.parametrize("wrong", [3, -1, 1.0, "EVAL", Path("EVAL"), object(), np.zeros(2), torch.zeros(()), [0]])
def test_anything_else_is_refused(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=r"training must be one of TrainingMode.EVAL, TrainingMode.PRESERVE, "):
        check_mode("training", wrong, TrainingMode)


def test_a_member_of_the_other_enumeration_is_refused() -> None:
    with pytest.raises(ArgumentError, match="not a TrainingMode"):
        check_mode("operator_export_type", torch.onnx.TrainingMode.EVAL, OperatorExportTypes)
