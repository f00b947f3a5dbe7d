"""Networks in float16 and bfloat16: weights keep their dtype, and the errors are at most about twice torch's."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tests.compare import assert_as_accurate
from tests.models.registry import CASES, Inputs, ModelCase

HALF = (torch.float16, torch.bfloat16)
BY_NAME = {case.name: case for case in CASES}


class Recurrent(nn.Module):
    """Two bidirectional layers over a batch of sequences."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layers = kind(8, 16, 2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)[0]


def audio() -> nn.Module:
    """Returns convolutions over time, as at the beginning and the end of speech models."""
    return nn.Sequential(
        nn.Conv1d(8, 16, 3, padding=1), nn.GELU(), nn.Conv1d(16, 16, 3, stride=2, padding=1), nn.GELU(),
        nn.ConvTranspose1d(16, 8, 4, stride=2), nn.GroupNorm(2, 8),
    )  # fmt: skip


def sequences(batch: int, length: int) -> Inputs:
    torch.manual_seed(2)
    return Inputs((torch.randn(batch, length, 8),))


def signals(batch: int, length: int) -> Inputs:
    torch.manual_seed(2)
    return Inputs((torch.randn(batch, 8, length),))


BATCH_LENGTH = ({0: "batch", 1: "length"},)


def recurrent(name: str, kind: type[nn.RNNBase]) -> ModelCase:
    return ModelCase(name, lambda: Recurrent(kind), lambda: sequences(2, 5), lambda: sequences(3, 7), BATCH_LENGTH)


SMALL = {
    "lstm": recurrent("lstm", nn.LSTM),
    "gru": recurrent("gru", nn.GRU),
    "audio": ModelCase("audio", audio, lambda: signals(2, 20), lambda: signals(3, 24), ({0: "batch", 2: "length"},)),
}
LARGE = {name: BY_NAME[name] for name in ("resnet", "vit", "llama", "whisper_encoder")}


def results(module: nn.Module, inputs: Inputs) -> list[Tensor]:
    with torch.no_grad():
        return [leaf for leaf in pytree.tree_leaves(module(*inputs.args, **inputs.kwargs)) if isinstance(leaf, Tensor)]


def check(case: ModelCase, dtype: torch.dtype, opset: int) -> None:
    """Compares the exported network and eager with the same weights in float64, at two sizes.

    ``assert_as_accurate`` allows the exported network twice the error of eager.
    """
    module, example = case.build(dtype), case.example().to(dtype)
    program = case.export(dtype, opset_version=opset)
    exact = copy.deepcopy(module).double()
    for inputs in (example, case.other().to(dtype)):
        truth, eager = results(exact, inputs.to(torch.float64)), results(module, inputs)
        assert_as_accurate(program(*inputs.args, **inputs.kwargs), eager, truth)
    kept = {str(dtype).removeprefix("torch.").upper(), "INT64", "BOOL"}
    values = program.model.graph.initializers.values()
    assert {v.dtype.name for v in values if v.dtype and v.const_value is not None and v.const_value.size > 8} <= kept


@pytest.mark.parametrize("opset", [18, 20, 23])
@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_recurrence_and_audio(name: str, dtype: torch.dtype, opset: int) -> None:
    check(SMALL[name], dtype, opset)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", LARGE)
def test_networks(name: str, dtype: torch.dtype) -> None:
    check(LARGE[name], dtype, 20)
