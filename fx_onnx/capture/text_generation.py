"""The arguments of ``export()`` for a decoder of transformers with a key-value cache."""

from __future__ import annotations

import inspect
from typing import Any, Literal

import torch

from fx_onnx.capture.dim_expressions import DefinedDim
from fx_onnx.capture.read_states import state_layers, unread_states
from fx_onnx.core.arguments import check_flag, shown
from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.messages import MessageId

__all__ = ["text_generation_arguments"]

_BATCH, _SEQUENCE, _PAST = 2, 6, 5
"""The sizes of the example; all of them are dynamic."""
_POSITIONS_IGNORE_PAST = frozenset({"bamba"})
"""Model types of transformers whose forward counts positions from 0 whatever the past, unless it gets the positions."""
_SHORTEST = _SEQUENCE + _PAST + 1
"""The smallest size of a cache of a fixed size. A full one would make the size of the example static."""


def text_generation_arguments(
    model: torch.nn.Module,
    *,
    padding: bool = True,
    cache: Literal["dynamic", "static"] = "dynamic",
    max_length: int | None = None,
    full_cache: bool = False,
    logits_to_keep: int = 0,
    single_token: bool = False,
) -> dict[str, Any]:
    """Returns ``kwargs`` and ``dynamic_shapes`` of ``export()`` for a model of transformers that generates text.

    The exported program takes ``input_ids`` and ``position_ids`` (batch, sequence), ``attention_mask`` (batch, past +
    sequence) and a key-value cache of ``past`` tokens, and returns the logits and the new cache. One program prefills
    (with a past of 0) and decodes. The model runs once on a few tokens, because the shapes of its cache follow from its
    code.

    Args:
        model: a decoder of transformers with a language head, such as LlamaForCausalLM. It may be on the meta device.
        padding: whether the prompts of a batch may have different lengths. False leaves out ``attention_mask`` and
            ``position_ids``, because the positions follow from the past. Bamba keeps ``position_ids``, because its code
            counts positions from 0 whatever the past.
        cache: ``"dynamic"`` for a cache that grows (``DynamicCache``). ``"static"`` for one of a fixed size
            (``StaticCache``), which the program writes at the number of tokens that each layer has seen, the input
            ``past_key_values.0.cumulative_length``; a caller may bind the input and the output of the keys and values
            to one buffer.
        max_length: the number of tokens in a static cache, at least 12. Layers with a sliding window have as many.
        full_cache: True makes layers with a sliding window keep all tokens, so that all layers have the same past. By
            default such a layer of a dynamic cache keeps as many tokens as it can see.
        logits_to_keep: the number of tokens at the end of the sequence whose logits are computed; 0 means all. With
            1, prefill does not compute the logits of the prompt, which generation does not need.
        single_token: True gives a program of one token at a time, also for the prompt, whose first state is zeros. It
            needs ``padding=False``. Models such as Mamba and Jamba need it, because they do not continue from a state
            when they take several tokens.

    Raises:
        ArgumentError: an argument is not valid, the model is no decoder of transformers, it does not run with the
            cache, or it ignores the state of the cache.
    """
    _check_padding(padding, single_token)
    _check_cache(cache, max_length)
    parameters = _checked_parameters(model, full_cache, logits_to_keep)
    ids = torch.zeros(_BATCH, 1 if single_token else _SEQUENCE, dtype=torch.int64, device=_device(model))
    kwargs: dict[str, Any] = {"input_ids": ids}
    shapes: dict[str, Any] = {"input_ids": {0: "batch"} if single_token else {0: "batch", 1: "sequence"}}
    if padding:
        kwargs["attention_mask"] = torch.ones(_BATCH, _PAST + _SEQUENCE, dtype=torch.int64, device=ids.device)
        shapes["attention_mask"] = {0: "batch", 1: DefinedDim("total", "past + sequence")}
    needs_positions = padding or getattr(model.config, "model_type", None) in _POSITIONS_IGNORE_PAST
    if needs_positions and "position_ids" in parameters:
        kwargs["position_ids"] = torch.arange(_PAST, _PAST + ids.shape[1], device=ids.device).expand(_BATCH, -1).clone()
        shapes["position_ids"] = dict(shapes["input_ids"])
    name = _cache_name(parameters)
    kwargs[name] = _filled_cache(model, name, full_cache, max_length, ids)
    shapes[name] = {0: "batch", 2: "past"} if max_length is None else {0: "batch"}
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
    if not {"input_ids", "attention_mask", _cache_name(parameters)} <= parameters or not _generates_text(model):
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


def _check_padding(padding: Any, single_token: Any) -> None:
    """Raises an ArgumentError if the two arguments are not valid, or exclude each other."""
    check_flag("padding", padding)
    check_flag("single_token", single_token)
    if padding and single_token:
        raise ArgumentError(
            "single_token=True needs padding=False, because a state cannot leave out the padding of a prompt."
        )


def _cache_name(parameters: set[str]) -> str:
    """Returns the parameter that takes the cache; models without attention call it ``cache_params``."""
    return "cache_params" if "cache_params" in parameters else "past_key_values"


def _check_cache(cache: Any, max_length: Any) -> None:
    """Raises an ArgumentError if the two arguments are not valid, or do not belong together."""
    if cache not in ("dynamic", "static"):
        raise ArgumentError(f"cache must be 'dynamic' or 'static', not {shown(cache)}.")
    if cache == "dynamic" and max_length is not None:
        raise ArgumentError("max_length is the size of a static cache; pass cache='static' too, or leave it out.")
    if cache == "static" and (
        not isinstance(max_length, int) or isinstance(max_length, bool) or max_length < _SHORTEST
    ):
        raise ArgumentError(
            f"A static cache needs max_length, a number of tokens of at least {_SHORTEST}, not {shown(max_length)}."
        )


def _generates_text(model: Any) -> bool:
    config = getattr(model, "config", None)
    return bool(getattr(model, "can_generate", bool)()) and not getattr(config, "is_encoder_decoder", False)


def _device(model: torch.nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def _filled_cache(model: Any, name: str, full_cache: bool, max_length: int | None, tokens: torch.Tensor) -> Any:
    """Returns the cache after a prefill of ``_PAST`` tokens; with ``max_length`` it has a fixed size.

    Args:
        model: a decoder of transformers.
        name: its parameter that takes the cache.
        full_cache: whether layers with a sliding window keep all tokens.
        max_length: the size of a static cache; None takes a dynamic one.
        tokens: the tokens (batch, sequence) that the program takes after the prefill.

    Raises:
        ArgumentError: the model does not take such a cache, does not run, returns no cache, or ignores the state in
            the cache.
    """
    ids = torch.zeros(_BATCH, _PAST, dtype=torch.int64, device=_device(model))
    is_training = model.training
    try:
        cache = _empty_cache(model, full_cache, max_length)
        with torch.no_grad():
            result = model.eval()(input_ids=ids, use_cache=True, **{name: cache})
        unread = unread_states(model, name, cache, tokens) if state_layers(cache) else []
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        kind = "DynamicCache" if max_length is None else "StaticCache"
        raise ArgumentError(
            f"{type(model).__name__} does not run with a {kind}: {error}", id=MessageId.NO_DECODER
        ) from error
    finally:
        model.train(is_training)
    _check_state(model, cache, unread, is_single=tokens.shape[1] == 1)
    if getattr(result, name, None) is None:
        advice = "; set config.is_decoder = True" if getattr(model.config, "is_decoder", None) is False else ""
        raise ArgumentError(f"{type(model).__name__} returns no cache{advice}.", id=MessageId.NO_DECODER)
    return cache


def _check_state(model: Any, cache: Any, unread: list[str], *, is_single: bool) -> None:
    """Raises an ArgumentError if a program would not continue from its state.

    The layers of RecurrentGemma without attention leave nothing in the cache. Those of Mamba and Jamba ignore the state
    when they take several tokens.
    """
    if unread:
        advice = "" if is_single else "; pass single_token=True and padding=False, so that the program takes one token"
        raise ArgumentError(
            f"{type(model).__name__} ignores the state of its past, such as {unread[0]}, when it takes "
            f"{'one token' if is_single else 'several tokens'}{advice}.",
            id=MessageId.NO_DECODER,
        )
    linear = state_layers(cache)
    if linear and not any(_has_tensor(value) for layer in linear for value in vars(layer).values()):
        raise ArgumentError(
            f"{type(model).__name__} keeps the state of its layers without attention outside of its cache, so a "
            "program would not continue from it.",
            id=MessageId.NO_DECODER,
        )


def _has_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, dict) and any(map(_has_tensor, value.values())))


def _empty_cache(model: Any, full_cache: bool, max_length: int | None) -> Any:
    from transformers import DynamicCache, StaticCache
    from transformers.cache_utils import StaticLayer, StaticSlidingWindowLayer

    if max_length is None:
        cache = DynamicCache(config=model.config)
        return _without_windows(cache) if full_cache else cache
    # A static layer with a window moves its tokens once it is full, which a Python number decides. All layers keep all
    # tokens instead, and the mask hides the old ones.
    static: Any = StaticCache(config=model.config, max_cache_len=max_length)
    full: Any = StaticLayer  # transformers does not annotate it
    static.layers = [full(max_length) if type(x) is StaticSlidingWindowLayer else x for x in static.layers]
    return static


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
