"""A captured program has its conditions, and refuses data of another path."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fx_onnx.data_branches.condition import MARKS
from tests.data_branches.branching_modules import POSITIVE, export


def of_values(m: nn.Module, x: Tensor) -> Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def of_a_size(m: nn.Module, x: Tensor) -> Tensor:
    return x + 1 if x[x > 0].shape[0] > 3 else x - 1


@pytest.mark.parametrize(("function", "mark"), [(of_values, MARKS[0]), (of_a_size, MARKS[1])])
def test_the_program_of_one_path_refuses_the_data_of_another(function: object, mark: object) -> None:
    program = export(function)  # type: ignore[arg-type]
    exported = program.exported_program
    assert [node.args[1] for node in exported.graph.nodes if node.target is mark] == [False]
    assert torch.equal(exported.module()(-POSITIVE), -POSITIVE - 1)
    with pytest.raises(RuntimeError, match=r"take another .*; use the module, as in|assertion failed"):  # torch's own
        exported.module()(POSITIVE)


def test_no_mark_is_left_in_the_model() -> None:
    program = export(of_values)
    assert "fx_onnx" not in program.model.graph.opset_imports
    assert not any(node.domain for node in program.model.graph)
