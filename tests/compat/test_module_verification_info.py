"""VerificationInfo: the differences and histograms of two values, and of all values of a program."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.onnx.verification
from torch import Tensor, nn

import fx_onnx
from fx_onnx.compat.module_verification import VerificationInfo, verify_onnx_program

X = torch.randn(2, 3)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()


def wrong_relu(op: Any, self: Any) -> Any:
    return op.LeakyRelu(self, alpha=0.5)


WRONG: Any = {torch.ops.aten.relu.default: wrong_relu}


@pytest.mark.parametrize(
    ("expected", "actual", "absolute", "relative"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), 0.5, 0.25),
        (torch.tensor([math.nan, math.inf]), torch.tensor([math.nan, math.inf]), 0.0, 0.0),
        (torch.tensor([math.nan]), torch.tensor([1.0]), math.inf, math.inf),
        (torch.zeros(0), torch.zeros(0), 0.0, 0.0),
        (torch.zeros(2), torch.zeros(3), math.inf, math.inf),
        (True, torch.tensor(False), 1.0, 1.0),
        (torch.tensor([1 + 2j]), torch.tensor([[1.0, 2.0]]), 0.0, 0.0),
        (3, torch.tensor(4), 1.0, 1 / 3),
    ],
)
def test_the_differences_of_two_values(expected: Any, actual: Any, absolute: float, relative: float) -> None:
    info = VerificationInfo.from_tensors("y", expected, actual)
    assert info.max_abs_diff == pytest.approx(absolute)
    assert info.max_rel_diff == pytest.approx(relative)
    assert info.actual_dtype == actual.dtype


def test_the_histograms_have_the_edges_of_torch() -> None:
    expected, actual = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([1.0, 1.05, 3.0])
    ours = VerificationInfo.from_tensors("y", expected, actual)
    theirs = torch.onnx.verification.VerificationInfo.from_tensors("y", expected, actual)
    assert ours.asdict()["abs_diff_hist"] == theirs.asdict()["abs_diff_hist"]
    assert ours.asdict()["rel_diff_hist"] == theirs.asdict()["rel_diff_hist"]
    assert ours.asdict().keys() == theirs.asdict().keys()


@pytest.mark.parametrize("intermediates", [False, True])
def test_verify_onnx_program(intermediates: bool) -> None:
    right = fx_onnx.export(Net().eval(), (X,))
    infos = verify_onnx_program(right, compare_intermediates=intermediates)
    assert len(infos) >= 1 + intermediates
    assert all(info.max_abs_diff < 1e-5 for info in infos)
    wrong = fx_onnx.export(Net().eval(), (X,), custom_translation_table=WRONG)
    found = verify_onnx_program(wrong, (torch.randn(2, 3),), compare_intermediates=intermediates)
    assert [info.name for info in found if info.max_abs_diff > 1e-3] == ["relu"]


def test_a_program_without_an_exported_program_is_refused() -> None:
    program = fx_onnx.ONNXProgram(fx_onnx.export(nn.ReLU().eval(), (X,)).model)
    with pytest.raises(fx_onnx.ArgumentError, match="no exported_program"):
        verify_onnx_program(program)
