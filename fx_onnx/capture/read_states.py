"""Which states of a cache a model reads, found with autograd, because it needs no data and no capture."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch

__all__ = ["state_layers", "unread_states"]

_STATES = ("conv_states", "recurrent_states")


def state_layers(cache: Any) -> list[Any]:
    """Returns the layers of a cache of transformers that hold a state instead of, or beside, keys and values."""
    return [layer for layer in cache.layers if hasattr(layer, "conv_states")]


def unread_states(model: Any, name: str, cache: Any, ids: torch.Tensor) -> list[str]:
    """Returns the states that have no effect on the logits of the next tokens, such as ``0.recurrent_states.0``.

    The model runs once. It may be on the meta device.

    Args:
        model: a decoder of transformers in evaluation mode.
        name: its parameter that takes the cache.
        cache: the cache after a prefill. It does not change.
        ids: the next tokens (batch, sequence).
    """
    probe = copy.deepcopy(cache)
    with torch.inference_mode(False), torch.enable_grad():
        leaves = {}
        for layer, kind, index, place in _states(probe):
            leaf = getattr(layer, kind)[index].detach().clone().requires_grad_()
            # The model writes into its states, and autograd refuses a write into a leaf.
            getattr(layer, kind)[index] = leaf.clone()
            leaves[f"{place}.{kind}.{index}"] = leaf
        logits = model(input_ids=ids, use_cache=True, **{name: probe}).logits
    return _unreached(logits, leaves)


def _states(cache: Any) -> Iterator[tuple[Any, str, int, int]]:
    """Yields the layer, the name of the attribute, the index in it and the number of the layer for each state."""
    for place, layer in enumerate(cache.layers):
        for kind in _STATES:
            for index, state in getattr(layer, kind, {}).items():
                if isinstance(state, torch.Tensor):
                    yield layer, kind, index, place


def _unreached(result: torch.Tensor, leaves: Mapping[str, torch.Tensor]) -> list[str]:
    """Returns the names of the leaves from which ``result`` is not computed. The graph of autograd is only walked."""
    waiting, seen, reached = [result.grad_fn], set(), set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        reached.add(id(getattr(node, "variable", None)))
        waiting.extend(following for following, _ in node.next_functions)
    return [name for name, leaf in leaves.items() if id(leaf) not in reached]
