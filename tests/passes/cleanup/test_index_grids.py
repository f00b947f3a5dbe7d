"""Reads at all positions, exported from indexing with arange."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import fx_onnx

Read = Callable[[Tensor, Tensor, Tensor], Tensor]


class Module(torch.nn.Module):
    def __init__(self, read: Read) -> None:
        super().__init__()
        self.read = read

    def forward(self, x: Tensor) -> Tensor:
        return self.read(x, torch.arange(x.size(0)), torch.arange(x.size(1)))


def operators(read: Read) -> set[str]:
    """Exports the read with dynamic dims, compares it at another size, and returns the operators."""
    module = Module(read).eval()
    program = fx_onnx.export(
        module, (torch.randn(3, 4, 2),), dynamic_shapes=({0: "batch", 1: "sequence"},), verbose=False
    )
    other = torch.randn(5, 3, 2)
    assert torch.equal(program(other)[0], module(other))
    return {node.op_type for node in program.model.graph}


def test_all_positions() -> None:
    assert operators(lambda x, i, j: x[i[:, None, None], j]) == {"Unsqueeze"}
    assert operators(lambda x, i, j: x[i[:, None, None, None], j[None, None, :, None]]) == {"Unsqueeze"}
    assert "GatherND" not in operators(lambda x, i, j: x[i[:, None], j].relu())


@pytest.mark.parametrize(
    "read",
    [
        lambda x, i, j: x[i[None, :], j[:, None]],  # permuted
        lambda x, i, j: x[i[:, None], j + 0 * i.size(0) - 1],  # begins at -1
        lambda x, i, j: x[i[:, None], torch.arange(1, x.size(1))],
        lambda x, i, j: x[i[:, None], torch.arange(0, x.size(1), 2)],
        lambda x, i, j: x[i[:, None, None].expand(-1, 2, -1), j],  # repeated
    ],
)
def test_declined(read: Read) -> None:
    assert "GatherND" in operators(read)
