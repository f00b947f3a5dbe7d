"""The arguments of ``export()`` for a decoder of transformers with a key-value cache."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from fx_onnx.core.arguments import check_flag, shown
from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.messages import MessageId

__all__ = ["text_generation_arguments"]

_BATCH, _SEQUENCE, _PAST = 2, 6, 5
"""The sizes of the example; all of them are dynamic."""


def text_generation_arguments(
    model: torch.nn.Module, *, padding: bool = True, full_cache: bool = False, logits_to_keep: int = 0
) -> dict[str, Any]:
    """Returns ``kwargs`` and ``dynamic_shapes`` of ``export()`` for a model of transformers that generates text.

    The exported program takes ``input_ids`` and ``position_ids`` (batch, sequence), ``attention_mask`` (batch, past +
    sequence) and a key-value cache of ``past`` tokens, and returns the logits and the new cache. One program prefills
    (with a past of 0) and decodes. The model runs once on a few tokens, because the shapes of its cache follow from its
    code.

    Args:
        model: a decoder of transformers with a language head, such as LlamaForCausalLM. It may be on the meta device.
        padding: whether the prompts of a batch may have different lengths. False leaves out ``attention_mask`` and
            ``position_ids``, because the positions follow from the past.
        full_cache: True makes layers with a sliding window keep all tokens, so that all layers have the same past. By
            default such a layer keeps as many tokens as it can see.
        logits_to_keep: the number of tokens at the end of the sequence whose logits are computed; 0 means all. With
            1, prefill does not compute the logits of the prompt, which generation does not need.

    Raises:
        ArgumentError: the model is no decoder of transformers, or does not run with a ``DynamicCache``.
    """
    check_flag("padding", padding)
    parameters = _checked_parameters(model, full_cache, logits_to_keep)
    ids = torch.zeros(_BATCH, _SEQUENCE, dtype=torch.int64, device=_device(model))
    kwargs: dict[str, Any] = {"input_ids": ids}
    shapes: dict[str, Any] = {"input_ids": {0: "batch", 1: "sequence"}}
    if padding:
        kwargs["attention_mask"] = torch.ones(_BATCH, _PAST + _SEQUENCE, dtype=torch.int64, device=ids.device)
        shapes["attention_mask"] = {0: "batch", 1: "total"}
    if padding and "position_ids" in parameters:
        kwargs["position_ids"] = torch.arange(_PAST, _PAST + _SEQUENCE, device=ids.device).expand(_BATCH, -1).clone()
        shapes["position_ids"] = {0: "batch", 1: "sequence"}
    kwargs["past_key_values"] = _filled_cache(model, full_cache)
    shapes["past_key_values"] = {0: "batch", 2: "past"}
    if logits_to_keep:
        kwargs["logits_to_keep"], shapes["logits_to_keep"] = logits_to_keep, None
    if not getattr(model.config, "use_cache", True):
        kwargs["use_cache"], shapes["use_cache"] = True, None
    return {"kwargs": kwargs, "dynamic_shapes": shapes}


def _checked_parameters(model: Any, full_cache: Any, logits_to_keep: Any) -> set[str]:
    """Returns the names of the parameters of the model's forward.

    Raises:
        ArgumentError: an argument is not valid.
    """
    check_flag("full_cache", full_cache)
    if not isinstance(logits_to_keep, int) or isinstance(logits_to_keep, bool) or logits_to_keep < 0:
        raise ArgumentError(f"logits_to_keep must be a number of tokens, not {shown(logits_to_keep)}.")
    parameters = set(inspect.signature(model.forward).parameters) if isinstance(model, torch.nn.Module) else set()
    if not {"input_ids", "attention_mask", "past_key_values"} <= parameters or not _generates_text(model):
        raise ArgumentError(
            f"{type(model).__name__} is no decoder of transformers that generates text with a cache "
            "(past_key_values), such as LlamaForCausalLM.",
            id=MessageId.NO_DECODER,
        )
    if logits_to_keep and "logits_to_keep" not in parameters:
        raise ArgumentError(
            f"{type(model).__name__} has no parameter logits_to_keep; it computes all logits.", id=MessageId.NO_DECODER
        )
    return parameters


def _generates_text(model: Any) -> bool:
    config = getattr(model, "config", None)
    return bool(getattr(model, "can_generate", bool)()) and not getattr(config, "is_encoder_decoder", False)


def _device(model: torch.nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def _filled_cache(model: Any, full_cache: bool) -> Any:
    """Returns the cache after a prefill of ``_PAST`` tokens.

    Raises:
        ArgumentError: the model does not take a DynamicCache, or does not run.
    """
    from transformers import DynamicCache

    ids = torch.zeros(_BATCH, _PAST, dtype=torch.int64, device=_device(model))
    is_training = model.training
    try:
        cache = _without_windows(DynamicCache(config=model.config)) if full_cache else DynamicCache(config=model.config)
        with torch.no_grad():
            model.eval()(input_ids=ids, past_key_values=cache, use_cache=True)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"{type(model).__name__} does not run with a DynamicCache: {error}", id=MessageId.NO_DECODER
        ) from error
    finally:
        model.train(is_training)
    return cache


def _without_windows(cache: Any) -> Any:
    """Returns a cache whose layers with a sliding window keep all tokens.

    It is ``DynamicCache()`` if the model has attention layers only, so that a caller of the program can create one.
    """
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    attention = (DynamicLayer, DynamicSlidingWindowLayer)
    if all(type(layer) in attention for layer in cache.layers):
        return DynamicCache()
    full: Any = DynamicLayer  # transformers does not annotate it
    cache.layers = [full() if type(layer) is DynamicSlidingWindowLayer else layer for layer in cache.layers]
    return cache
