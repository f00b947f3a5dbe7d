"""Replacements for the recurrences of transformers, which loop over tokens, or over chunks of tokens, in Python.

Each model file of transformers has its own copy of these functions, in two forms: one for many tokens and one for a
single token. A loop over a dynamic number of tokens would be unrolled for the example. The replacements call one
operator for both forms, which is the same for any number of tokens.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

import fx_onnx.torch_internals.custom_ops  # noqa: F401  creates the library fx_onnx
from fx_onnx.capture.patches.patching import KEPT_MARK, Around, Patch

__all__ = ["KEPT", "PATCHES", "recurrence_patches", "scans_from_state"]

_operators: Any = torch.ops.fx_onnx
_REASON = "The original loops over the tokens, or the chunks of tokens, of the example."


def _delta_rule(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor | None = None,
    output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Replaces the gated delta rule for one token, with a decay for each head, or for each channel (Kimi)."""
    dtype = query.dtype
    query, key, value, g, beta = (tensor.float() for tensor in (query, key, value, g, beta))
    if use_qk_l2norm_in_kernel:
        query, key = (tensor * torch.rsqrt((tensor * tensor).sum(-1, keepdim=True) + 1e-6) for tensor in (query, key))
    size = value.shape[0], value.shape[2], key.shape[3], value.shape[3]
    state = value.new_zeros(size) if initial_state is None else initial_state.float()
    results, state = _operators.linear_attention(query, key, value, g, beta, state, key.shape[-1] ** -0.5)
    return results.to(dtype), state if output_final_state else None


def _chunk_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, chunk_size: int = 64,
    initial_state: Tensor | None = None, output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Replaces the gated delta rule for many tokens; the size of its chunks does not change the results."""
    return _delta_rule(query, key, value, g, beta, initial_state, output_final_state, use_qk_l2norm_in_kernel)


def _mamba2_chunk_scan(
    hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, chunk_size: int, D: Tensor | None = None,
    dt_bias: Tensor | None = None, initial_states: Tensor | None = None, dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, math.inf), return_final_states: bool = False,
) -> Any:  # fmt: skip
    """Replaces ``mamba2_chunk_scan``: a linear attention of C on B, with the state (batch, head, size, n)."""
    dt = dt if dt_bias is None else dt + dt_bias.to(dt.dtype)
    dt = softplus(dt) if dt_softplus else dt
    if tuple(dt_limit) != (0.0, math.inf):  # the form for one token has no limit
        many = torch.sym_min(hidden_states.shape[1], 2) - 1
        dt = dt + (torch.clamp(dt, *dt_limit) - dt) * many
    hidden_states, dt, B, C = (tensor.float() for tensor in (hidden_states, dt, B, C))
    size = (*hidden_states.shape[:1], *hidden_states.shape[2:], B.shape[-1])
    state = hidden_states.new_zeros(size) if initial_states is None else initial_states.float()
    value, decay = hidden_states * dt.unsqueeze(-1), A.float() * dt
    results, state = _operators.linear_attention(C, B, value, decay, None, state.transpose(2, 3), 1.0)
    if D is not None:
        results = results + D.unsqueeze(-1) * hidden_states
    return (results, state.transpose(2, 3)) if return_final_states else results


def _mamba2_update(
    state: Tensor, hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None,
    dt_bias: Tensor | None = None, dt_softplus: bool = False, z: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Replaces ``mamba2_selective_state_update``, which takes one token and writes the state.

    The arguments of a head are repeated for its elements.
    """
    A, D, dt_bias = A[:, 0, 0], None if D is None else D[:, 0], None if dt_bias is None else dt_bias[:, 0]
    results, new = _mamba2_chunk_scan(
        hidden_states.unsqueeze(1), dt[..., 0].unsqueeze(1), A, B.unsqueeze(1), C.unsqueeze(1), 1, D, dt_bias, state,
        dt_softplus, return_final_states=True,
    )  # fmt: skip
    state.copy_(new)
    if z is not None:
        results = results * silu(z.unsqueeze(1))
    result: Tensor = results.squeeze(1).to(hidden_states.dtype)
    return result


# --- Mamba 1 ----------------------------------------------------------------------------------------------------------

_last_read: list[Tensor | None] = []  # the state that a layer has read from its cache, because the scan does not get it


def _get_recurrent_state(original: Callable[..., Tensor | None]) -> Callable[..., Tensor | None]:
    """Returns what replaces ``Cache.get_recurrent_state``: it keeps the state for the scan of the layer."""

    def get(self: Any, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        state = original(self, layer_idx, state_idx)
        _last_read[:] = [state]
        return state

    return get


def _selective_scan(
    hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None,
    z: Tensor | None = None, delta_bias: Tensor | None = None, delta_softplus: bool = False,
    return_last_state: bool = False, use_mambapy: bool = False, use_associative_scan: bool = False,
) -> Any:  # fmt: skip
    """Replaces ``mamba_selective_scan``, which starts from zeros although the layer has read a state from its cache.

    A layer with several heads calls it for each head, and has another state for each.
    """
    read, _last_read[:] = list(_last_read), []
    state = read[0] if read and return_last_state else None
    if state is None or state.dim() != 3:
        state = A.new_zeros((*hidden_states.shape[:2], A.shape[1]))
    return _scan_from(state, hidden_states, dt, A, B, C, D, z, delta_bias, delta_softplus, return_last_state)


def _scan_from(
    state: Tensor, hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None,
    z: Tensor | None, bias: Tensor | None, applies_softplus: bool, returns_state: bool,
) -> Any:  # fmt: skip
    """Computes a selective scan from a state."""
    dt = dt if bias is None else dt + bias.to(dt.dtype).unsqueeze(-1)
    dt = softplus(dt) if applies_softplus else dt
    results, state = _operators.selective_scan(*(tensor.float() for tensor in (hidden_states, dt, A, B, C, state)))
    results = results.to(hidden_states.dtype)
    if D is not None:
        results = results + hidden_states * D.unsqueeze(-1)
    if z is not None:
        results = results * silu(z)
    return (results, state) if returns_state else results


def _selective_update(
    state: Tensor, hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None,
    dt_bias: Tensor | None = None, dt_softplus: bool = False, z: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Replaces ``mamba_selective_state_update``, which takes one token and writes the state."""
    token = hidden_states.unsqueeze(-1), dt.unsqueeze(-1)
    B, C = (tensor.unsqueeze(1).transpose(1, 2) for tensor in (B, C))
    z = None if z is None else z.unsqueeze(-1)
    results, new = _scan_from(state, *token, A, B, C, D, z, dt_bias, dt_softplus, True)
    state.copy_(new)
    result: Tensor = results.squeeze(-1).to(hidden_states.dtype)
    return result


# --- RWKV and MiniMax -------------------------------------------------------------------------------------------------


def _rwkv(
    time_decay: Tensor, time_first: Tensor, key: Tensor, value: Tensor, state: Any = None, return_state: bool = False
) -> tuple[Tensor, list[Tensor] | None]:
    """Replaces ``rwkv_linear_attention_cpu``."""
    returns_state = return_state or state is not None
    if state is None:
        zeros = torch.zeros_like(key[:, 0], dtype=torch.float32)
        state = zeros, zeros, zeros - 1e38
    weights = torch.exp(time_decay).float(), time_first.float()
    results, *last = _operators.rwkv(*weights, key.float(), value.float(), *state)
    return results.to(key.dtype), last if returns_state else None


def _mixed(self: Any, hidden: Tensor, last: Tensor | None, *names: str) -> list[Tensor]:
    """Returns what layers make of the mean of each token and the one before it, both (batch, token, size).

    transformers has another branch for one token after a state, which mixes the texts of a batch.

    Args:
        self: a module of RWKV.
        hidden: the tokens.
        last: the state (batch, size, layer) with the token before the first one; None means zeros.
        names: the layers, whose weights of the mean are named after them.
    """
    first = torch.zeros_like(hidden[:, :1]) if last is None else last[:, None, :, self.layer_id]
    before = torch.cat([first, hidden[:, :-1]], 1)
    weights = [getattr(self, f"time_mix_{name}") for name in names]
    mixed = [hidden * weight + before * (1 - weight) for weight in weights]
    return [getattr(self, name)(tokens) for name, tokens in zip(names, mixed, strict=True)]


def _extract_key_value(self: Any, hidden: Tensor, state: Any = None) -> tuple[Tensor, Tensor, Tensor, Any]:
    """Replaces ``RwkvSelfAttention.extract_key_value``. The state is returned, and not written into the given one."""
    key, value, receptance = _mixed(self, hidden, state and state[1], "key", "value", "receptance")
    if state is not None:
        state = [tensor.clone() for tensor in state]
        state[1][:, :, self.layer_id] = hidden[:, -1]
    return torch.sigmoid(receptance), key, value, state


def _rwkv_feed_forward(self: Any, hidden: Tensor, state: Any = None) -> tuple[Tensor, Any]:
    """Replaces ``RwkvFeedForward.forward``."""
    key, receptance = _mixed(self, hidden, state and state[0], "key", "receptance")
    if state is not None:
        state[0][:, :, self.layer_id] = hidden[:, -1]
    return torch.sigmoid(receptance) * self.value(torch.square(torch.relu(key))), state


def _lightning_attention(
    self: Any, hidden_states: Tensor, position_embeddings: Any, attention_mask: Tensor | None,
    past_key_values: Any = None, cache: Any = None, **_: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Replaces ``MiniMaxLightningAttention.forward``, whose state decays by another constant for each head.

    The cache is ``cache`` from transformers 5.24 on, and ``past_key_values`` before.
    """
    cache = past_key_values if cache is None else cache
    batch, tokens, _hidden = hidden_states.shape
    dtype, heads, size = hidden_states.dtype, self.num_attention_heads, self.head_dim
    mixed = self.act_fn(self.qkv_proj(hidden_states))
    mixed = mixed if attention_mask is None else (mixed * attention_mask[:, :, None]).to(dtype)
    query, key, value = mixed.float().reshape(batch, tokens, heads, 3 * size).split(size, dim=3)
    state = None if cache is None else cache.get_linear_cache(self.layer_idx)
    state = value.new_zeros((batch, heads, size, size)) if state is None else state.float()
    decay = -self.slope_rate.float().reshape(1, 1, heads).expand(batch, tokens, heads)
    results, state = _operators.linear_attention(query, key, value, decay, None, state, 1.0)
    results = self.norm(results.reshape(batch, tokens, heads * size).to(dtype))
    results = self.out_proj(torch.sigmoid(self.output_gate(hidden_states)) * results)
    state = state.to(dtype)
    if cache is not None:
        cache.set_linear_cache(self.layer_idx, state)
    return results, state


# --- convolutions -----------------------------------------------------------------------------------------------------

_PARTS = "fx_onnx_parts"
"""The attribute of the tensor that a cache returns: the tokens of the past, and the new ones."""


def _causal_conv1d(
    hidden_states: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None
) -> Tensor:
    """Replaces ``causal_conv1d_fn``.

    After the tokens of a past, it returns the results of the new tokens only, to which the callers slice them.
    """
    past, new = vars(hidden_states).get(_PARTS, (None, hidden_states))
    if past is not None:
        past = past[..., past.shape[-1] - weight.shape[-1] + 1 :].to(weight.dtype)
    results: Tensor = _operators.causal_conv1d(new.to(weight.dtype), weight, bias, past)
    if activation is not None:
        results = sys.modules["transformers.activations"].ACT2FN[activation](results)
    return results.to(hidden_states.dtype)


def _causal_conv1d_update(
    hidden_states: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None
) -> Tensor:
    """Replaces ``causal_conv1d_update``, which takes one token and writes the state."""
    past, joined = conv_state.clone(), torch.cat([conv_state, hidden_states], dim=-1)
    conv_state.copy_(joined[..., -conv_state.shape[-1] :])
    vars(joined)[_PARTS] = past, hidden_states
    return _causal_conv1d(joined, weight, bias, activation)


def _update_conv_state(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns what replaces ``LinearAttentionLayer.update_conv_state``: it marks the tokens after a past."""

    def update(self: Any, conv_states: Tensor, state_idx: int = 0, **kwargs: Any) -> Tensor:
        past = self.conv_states[state_idx].clone() if self.has_previous_state[state_idx] else None
        joined = original(self, conv_states, state_idx=state_idx, **kwargs)
        if past is not None:
            vars(joined)[_PARTS] = past, conv_states
        return joined

    return update


# --- patches ----------------------------------------------------------------------------------------------------------

_Kept = dict[str, Callable[..., Any]]
KEPT: _Kept = {
    "torch_chunk_gated_delta_rule": _chunk_delta_rule,
    "torch_recurrent_gated_delta_rule": _delta_rule,
    "chunk_kimi_delta_attention": _chunk_delta_rule,
    "recurrent_kimi_delta_attention": _delta_rule,
    "mamba2_chunk_scan": _mamba2_chunk_scan,
    "mamba2_selective_state_update": _mamba2_update,
    "mamba_selective_scan": _selective_scan,
    "mamba_selective_state_update": _selective_update,
    "rwkv_linear_attention_cpu": _rwkv,
    "causal_conv1d_fn": _causal_conv1d,
    "causal_conv1d_update": _causal_conv1d_update,
}


_RWKV, _TOKEN = "transformers.models.rwkv.modeling_rwkv", "The original has another branch for one token."
PATCHES = (
    Patch(
        "transformers.cache_utils:Cache.get_recurrent_state",
        Around(_get_recurrent_state),
        "The scan of Mamba 1 does not get the state.",
        versions="transformers>=5.20",
        strict=False,
    ),
    Patch(
        "transformers.models.minimax.modeling_minimax:MiniMaxLightningAttention.forward",
        _lightning_attention,
        _REASON,
        versions="transformers>=5.20",
        strict=False,
    ),
    Patch(
        "transformers.cache_utils:LinearAttentionLayer.update_conv_state",
        Around(_update_conv_state),
        "A convolution would compute the tokens of the past again.",
        versions="transformers>=5.20",
        strict=False,
    ),
    Patch(f"{_RWKV}:RwkvSelfAttention.extract_key_value", _extract_key_value, _TOKEN, strict=False),
    Patch(f"{_RWKV}:RwkvFeedForward.forward", _rwkv_feed_forward, _TOKEN, strict=False),
)


def recurrence_patches(modules: Iterable[torch.nn.Module]) -> Iterator[Patch]:
    """Yields the replacements in the files of transformers that define the classes of a model's modules."""
    for name in sorted({type(module).__module__ for module in modules}):
        functions = vars(sys.modules[name]) if name.startswith("transformers.") else {}
        for function in KEPT.keys() & functions.keys():
            if not hasattr(functions[function], KEPT_MARK):
                replacement = Around(_with_fallback(KEPT[function]))
                yield Patch(f"{name}:{function}", replacement, _REASON, versions="transformers>=5.20", strict=False)


def scans_from_state(modules: Iterable[torch.nn.Module], layers: Iterable[Any]) -> bool:
    """Returns whether a capture of the model continues from the states of Mamba 1, which its own code ignores.

    Args:
        modules: the modules of a model of transformers.
        layers: the layers of its cache that hold states.
    """
    files = {type(module).__module__ for module in modules}
    has_scan = any(
        name.startswith("transformers.") and "mamba_selective_scan" in vars(sys.modules[name]) for name in files
    )
    states = [state for layer in layers for state in layer.recurrent_states.values() if state is not None]
    return has_scan and {state.dim() for state in states} == {3}


_PACKED = ("cu_seqlens", "seq_idx")
"""The arguments of packed sequences, for which the original raises an exception."""


def _with_fallback(replacement: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns what makes the replacement of a function; a call with a parameter that it does not have is not replaced.

    What the original takes as ``**kwargs``, it ignores.
    """
    known = inspect.signature(replacement).parameters

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(original).parameters

        def replaced(*args: Any, **kwargs: Any) -> Any:
            given = dict(zip(own, args, strict=False)) | kwargs
            read = {name for name, value in given.items() if value is not None and name in (*own, *_PACKED)}
            if read <= known.keys():
                return replacement(**{name: value for name, value in given.items() if name in known})
            return original(*args, **kwargs)

        return replaced

    return make
