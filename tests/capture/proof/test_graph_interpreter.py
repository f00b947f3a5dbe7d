"""A captured graph runs as the program does: its lists keep their lengths, its tensors their ranks and static sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from fx_onnx.capture.proof.graph_interpreter import GraphInterpreter
from tests.capture.sample_modules import Function


def run(function: Callable[[Tensor], Tensor], rows: int) -> Tensor:
    program = torch.export.export(Function(function), (torch.ones(9, 4),), dynamic_shapes=(({0: Dim.AUTO}),))
    result: Tensor = GraphInterpreter(program.graph_module, False).run(torch.ones(rows, 4))[0]
    return result


@pytest.mark.parametrize("rows", [6, 7, 9])
def test_pieces_that_exist(rows: int) -> None:
    assert run(lambda x: x.split(3)[0] * 2, rows).shape == (3, 4)


@pytest.mark.parametrize(("place", "rows"), [(2, 12), (0, 5)])
def test_pieces_of_other_sizes_are_refused(place: int, rows: int) -> None:
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        run(lambda x: x.split(3)[place] * 2, rows)
