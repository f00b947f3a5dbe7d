"""Which states of a cache a model reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fx_onnx.applications.text_generation import state_layers, unread_states


class Recurrent(nn.Module):
    """Adds the states that it is told to read to its logits, and writes all of them in place."""

    def __init__(self, reads: set[str]) -> None:
        super().__init__()
        self.embed, self.reads = nn.Embedding(9, 4), reads

    def forward(self, input_ids: Tensor, past: Any, use_cache: bool) -> Any:
        logits = self.embed(input_ids)
        for layer in past.layers[:1]:
            for kind in ("conv_states", "recurrent_states"):
                state = getattr(layer, kind)[0]
                logits = logits + state[:, None] if kind in self.reads else logits
                state.copy_(logits[:, -1])
        return SimpleNamespace(logits=logits)


def cache(device: str) -> Any:
    states = {kind: {0: torch.zeros(2, 4, device=device), 1: None} for kind in ("conv_states", "recurrent_states")}
    return SimpleNamespace(layers=[SimpleNamespace(**states), SimpleNamespace(keys=torch.zeros(1))])


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("reads", "unread"),
    [
        ({"conv_states", "recurrent_states"}, []),
        ({"conv_states"}, ["0.recurrent_states.0"]),
        (set(), ["0.conv_states.0", "0.recurrent_states.0"]),
    ],
)
def test_states_without_effect(device: str, reads: set[str], unread: list[str]) -> None:
    filled, model = cache(device), Recurrent(reads).eval().to(device)
    ids = torch.zeros(2, 3, dtype=torch.int64, device=device)
    with torch.no_grad():
        assert unread_states(model, "past", filled, ids) == unread
    state = filled.layers[0].conv_states[0]
    assert not state.requires_grad and (device == "meta" or not state.any()), "the cache does not change"


def test_layers_with_a_state() -> None:
    filled = cache("cpu")
    assert state_layers(filled) == filled.layers[:1]
