"""The arguments of ``export()`` for a decoder of transformers with a key-value cache."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import itertools
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import torch

from fx_onnx.capture.eager_model import in_mode
from fx_onnx.libraries.recurrent_functions import scans_from_state
from fx_onnx.messages.arguments import check_flag, refuses_unknown_keywords, shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.requests.dim_expressions import DefinedDim
from fx_onnx.requests.export_modes import TrainingMode
from fx_onnx.torch_internals.torch_private import pytree

__all__ = ["takes_padding", "text_generation_arguments"]

_BATCH, _SEQUENCE, _PAST = 2, 6, 5
"""The sizes of the example; all of them are dynamic."""
_POSITIONS_IGNORE_PAST = frozenset({"bamba"})
"""Model types of transformers whose forward counts positions from 0 whatever the past, unless it gets the positions."""
_WITHOUT_PADDING = frozenset({"mamba", "falcon_mamba", "rwkv"})
"""Model types of transformers whose forward ignores a mask, or takes one of the new tokens only."""
_CACHES = ("cache_params", "state", "past_key_values")
"""The parameters that take the past: of models without attention, of RWKV, and of all others."""
_NEW_CACHE = "cache"
"""The parameter from transformers 5.24 on. It takes the old name too, which the inputs of the program keep."""
_SHORTEST = _SEQUENCE + _PAST + 1
"""The smallest size of a cache of a fixed size. A full one would make the size of the example static."""


@refuses_unknown_keywords
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
    _check_options(padding, cache, max_length, full_cache, logits_to_keep, single_token)
    parameters = _parameters(model, logits_to_keep)
    if padding and not takes_padding(model):
        raise _refused(model, "takes no mask of past and new tokens, so prompts cannot be padded; pass padding=False.")
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    ids = _example_tokens(model.config, 1 if single_token else _SEQUENCE, device)
    kwargs: dict[str, Any] = {"input_ids": ids}
    shapes: dict[str, Any] = {"input_ids": {0: "batch"} if single_token else {0: "batch", 1: "sequence"}}
    if padding:
        kwargs["attention_mask"] = torch.ones(_BATCH, _PAST + _SEQUENCE, dtype=torch.int64, device=device)
        shapes["attention_mask"] = {0: "batch", 1: DefinedDim("total", "past + sequence")}
    needs_positions = padding or getattr(model.config, "model_type", None) in _POSITIONS_IGNORE_PAST
    if needs_positions and "position_ids" in parameters:
        kwargs["position_ids"] = torch.arange(_PAST, _PAST + ids.shape[1], device=device).expand(_BATCH, -1).clone()
        shapes["position_ids"] = dict(shapes["input_ids"])
    name = next((known for known in _CACHES if known in parameters), "") or _old_name(model, ids[:, :_PAST])
    kwargs[name] = _filled_cache(model, name, full_cache, max_length, ids)
    shapes[name] = {0: "batch", 2: "past"} if max_length is None else {0: "batch"}
    if name == "state":
        shapes[name] = [{0: "batch"}] * len(kwargs[name])
    if logits_to_keep:
        kwargs["logits_to_keep"], shapes["logits_to_keep"] = logits_to_keep, None
    if not getattr(model.config, "use_cache", True):
        kwargs["use_cache"], shapes["use_cache"] = True, None
    return {"kwargs": kwargs, "dynamic_shapes": shapes}


def takes_padding(model: torch.nn.Module) -> bool:
    """Returns whether the prompts of a batch may have different lengths, with ``attention_mask``."""
    return getattr(getattr(model, "config", None), "model_type", None) not in _WITHOUT_PADDING


def _check_options(
    padding: Any, cache: Any, max_length: Any, full_cache: Any, logits_to_keep: Any, single_token: Any
) -> None:
    """Raises an ArgumentError if an argument is not valid, or excludes another one."""
    for name, flag in {"padding": padding, "full_cache": full_cache, "single_token": single_token}.items():
        check_flag(name, flag)
    wrong = (
        (
            padding and single_token,
            "single_token=True needs padding=False, because a state cannot leave out the padding of a prompt.",
        ),
        (cache not in ("dynamic", "static"), f"cache must be 'dynamic' or 'static', not {shown(cache)}."),
        (
            cache == "dynamic" and max_length is not None,
            "max_length is the size of a static cache; pass cache='static' too, or leave it out.",
        ),
        (
            cache == "static" and not _is_count(max_length, _SHORTEST),
            f"A static cache needs max_length, a number of tokens of at least {_SHORTEST}, not {shown(max_length)}.",
        ),
        (
            not _is_count(logits_to_keep, 0),
            f"logits_to_keep must be a number of tokens, not {shown(logits_to_keep)}.",
        ),
    )
    for is_wrong, message in wrong:
        if is_wrong:
            raise ArgumentError(message)


def _example_tokens(config: Any, length: int, device: torch.device) -> torch.Tensor:
    """Returns int64 tokens (batch, length) of the vocabulary without those that the config names, such as padding.

    A model may treat a named token apart: the embedding of padding is zero, and that of an image is replaced.
    """
    text = config.get_text_config(decoder=True)
    values = [value for section in (config, text) for name, value in vars(section).items() if "_token_" in name]
    ordinary = (token for token in range(getattr(text, "vocab_size", 1)) if token not in pytree.tree_leaves(values))
    tokens = [*itertools.islice(ordinary, _BATCH * length)] or [0]
    return torch.tensor([*itertools.islice(itertools.cycle(tokens), _BATCH * length)], device=device).view(_BATCH, -1)


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _refused(model: Any, reason: str) -> ArgumentError:
    return ArgumentError(f"{type(model).__name__} {reason}", id=MessageId.NO_DECODER)


def _parameters(model: Any, logits_to_keep: int) -> set[str]:
    """Returns the names of the parameters of the forward.

    Raises:
        ArgumentError: the model is no decoder of transformers, or computes all logits.
    """
    parameters = set(inspect.signature(model.forward).parameters) if isinstance(model, torch.nn.Module) else set()
    takes_past = {"input_ids", "attention_mask"} <= parameters and parameters & {*_CACHES, _NEW_CACHE}
    is_whole = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    if not takes_past or is_whole or not getattr(model, "can_generate", bool)():
        raise _refused(
            model,
            "is no decoder of transformers that generates text with a cache (past_key_values), such as "
            "LlamaForCausalLM.",
        )
    if logits_to_keep and "logits_to_keep" not in parameters:
        raise _refused(model, "has no parameter logits_to_keep; it computes all logits.")
    return parameters


def _filled_cache(model: Any, name: str, full_cache: bool, max_length: int | None, tokens: torch.Tensor) -> Any:
    """Returns the cache after a prefill of ``_PAST`` tokens; with ``max_length`` it has a fixed size.

    The layers of RecurrentGemma without attention leave nothing in the cache. Those of Mamba and Jamba ignore the state
    when they take several tokens.

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
    ids = _example_tokens(model.config, _PAST, tokens.device)
    try:
        with in_mode(model, TrainingMode.EVAL):
            result, cache = _prefill(model, name, full_cache, max_length, ids)
            linear = state_layers(cache)
            unread = unread_states(model, name, cache, tokens) if linear else []
        if tokens.shape[1] > 1 and scans_from_state(model.modules(), linear):
            unread = [path for path in unread if ".recurrent_states." not in path]
            for layer in linear:  # the model itself continues from zeros when it takes several tokens
                for state in layer.recurrent_states.values():
                    state.zero_()
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        kind = "DynamicCache" if max_length is None else "StaticCache"
        raise _refused(model, f"does not run with a {kind}: {error}") from error
    if unread:
        is_single = tokens.shape[1] == 1
        advice = "" if is_single else "; pass single_token=True and padding=False, so that the program takes one token"
        many = "one token" if is_single else "several tokens"
        raise _refused(model, f"ignores the state of its past, such as {unread[0]}, when it takes {many}{advice}.")
    states = pytree.tree_leaves([vars(layer) for layer in linear])
    if linear and not any(isinstance(state, torch.Tensor) for state in states):
        raise _refused(
            model,
            "keeps the state of its layers without attention outside of its cache, so a program would not continue "
            "from it.",
        )
    if _returned(result, name) is None:
        advice = "; set config.is_decoder = True" if getattr(model.config, "is_decoder", None) is False else ""
        raise _refused(model, f"returns no cache{advice}.")
    return cache


@torch.no_grad()
def _prefill(model: Any, name: str, full_cache: bool, max_length: int | None, ids: torch.Tensor) -> tuple[Any, Any]:
    """Returns the results of a model for the first tokens, and the cache after them.

    RWKV, and a model that refuses the cache of the library, create their own.
    """
    cache = None if name == "state" else _empty_cache(model, full_cache, max_length)
    try:
        result = _run(model, ids, {name: cache})
    except ValueError:
        if max_length is not None or full_cache:
            raise
        result = _run(model, ids, {})
        cache = None
    return result, _returned(result, name) if cache is None else cache


def _returned(result: Any, name: str) -> Any:
    """Returns the cache in the results of a model; None if there is none."""
    cache = getattr(result, _NEW_CACHE, None)  # first: transformers 5.24 logs a read of the old name
    return getattr(result, name, None) if cache is None else cache


def _run(model: Any, ids: torch.Tensor, past: Mapping[str, Any]) -> Any:
    """Returns the results of a model, without the warning that transformers gives for the old name of the parameter."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`(past_key_values|cache_params)` is deprecated", FutureWarning)
        return model(input_ids=ids, use_cache=True, **past)


def _old_name(model: Any, ids: torch.Tensor) -> str:
    """Returns the old name of a parameter ``cache``: that under which the model returns the cache that it is given."""
    for name in ("cache_params", "past_key_values"):
        # The forward is the user's code, which may raise anything.
        with contextlib.suppress(Exception), in_mode(model, TrainingMode.EVAL), torch.no_grad():
            cache = _empty_cache(model, False, None)
            if _returned(_run(model, ids, {name: cache}), name) is cache:
                return name
    return "past_key_values"


def _empty_cache(model: Any, full_cache: bool, max_length: int | None) -> Any:
    """Returns an empty cache, with ``max_length`` or ``full_cache`` one whose layers all keep all tokens.

    A static layer with a window moves its tokens once it is full, which a Python number decides; the mask hides the old
    tokens instead. A full dynamic cache is ``DynamicCache()`` if the model has attention layers only, so that a caller
    of the program can create one.
    """
    from transformers import DynamicCache, StaticCache, cache_utils

    layers: Any = cache_utils  # transformers does not annotate its layers
    if max_length is None:
        cache: Any = DynamicCache(config=model.config)
        kinds = {layers.DynamicLayer, layers.DynamicSlidingWindowLayer}
        if full_cache and {type(layer) for layer in cache.layers} <= kinds:
            return DynamicCache()
        replaced, full = layers.DynamicSlidingWindowLayer if full_cache else None, layers.DynamicLayer
    else:
        cache = StaticCache(config=model.config, max_cache_len=max_length)
        replaced, full = layers.StaticSlidingWindowLayer, functools.partial(layers.StaticLayer, max_length)
    cache.layers = [full() if type(layer) is replaced else layer for layer in cache.layers]
    return cache


# ---------------------------------------------------------------- states that a model reads


def state_layers(cache: Any) -> list[Any]:
    """Returns the layers of a cache of transformers that hold a state instead of, or beside, keys and values."""
    return [layer for layer in getattr(cache, "layers", ()) if hasattr(layer, "conv_states")]


def unread_states(model: Any, name: str, cache: Any, ids: torch.Tensor) -> list[str]:
    """Returns the states that have no effect on the logits of the next tokens, such as ``0.recurrent_states.0``.

    The model runs once, and the graph of autograd is only walked, so it may be on the meta device.

    Args:
        model: a decoder of transformers in evaluation mode.
        name: its parameter that takes the cache.
        cache: the cache after a prefill. It does not change.
        ids: the next tokens (batch, sequence).
    """
    probe = copy.deepcopy(cache)
    states = [
        (getattr(layer, kind), index, f"{number}.{kind}.{index}")
        for number, layer in enumerate(probe.layers)
        for kind in ("conv_states", "recurrent_states")
        for index, state in getattr(layer, kind, {}).items()
        if isinstance(state, torch.Tensor)
    ]
    leaves = {}
    with torch.inference_mode(False), torch.enable_grad():
        for holder, index, path in states:
            leaves[path] = leaf = holder[index].detach().clone().requires_grad_()
            holder[index] = leaf.clone()  # the model writes into its states, and autograd refuses a write into a leaf
        waiting = [model(input_ids=ids, use_cache=True, **{name: probe}).logits.grad_fn]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(following for following, _ in node.next_functions)
    reached = {id(getattr(node, "variable", None)) for node in seen}
    return [path for path, leaf in leaves.items() if id(leaf) not in reached]
