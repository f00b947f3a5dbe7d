"""Replacements of the recurrences of transformers compute the same, and make programs for any number of tokens."""

from __future__ import annotations

import ast
import copy
import inspect
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers.models.kimi_linear import modeling_kimi_linear
from transformers.models.mamba import modeling_mamba
from transformers.models.mamba2 import modeling_mamba2
from transformers.models.minimax.modeling_minimax import MiniMaxCache, MiniMaxLightningAttention
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.rwkv import modeling_rwkv

import fx_onnx
from fx_onnx.capture.patches.patching import apply_patches
from fx_onnx.extension_points.rooms import TABLE, find
from fx_onnx.libraries.recurrent_functions import KEPT, PATCHES, recurrence_patches
from tests.compare import assert_close
from tests.models.families import FAMILIES

BATCH, GROUPS, HEADS, DEPTH, WIDTH = 2, 2, 4, 8, 6


def delta_rule(tokens: int, by_channel: bool = False) -> dict[str, Any]:
    groups = HEADS if by_channel else GROUPS
    query, key = torch.randn(2, BATCH, tokens, groups, DEPTH)
    decay = -torch.rand(BATCH, tokens, HEADS, *([DEPTH] if by_channel else []))
    return {
        "query": query, "key": key, "value": torch.randn(BATCH, tokens, HEADS, WIDTH), "g": decay,
        "beta": torch.rand(BATCH, tokens, HEADS), "initial_state": torch.randn(BATCH, HEADS, DEPTH, WIDTH),
        "output_final_state": True, "use_qk_l2norm_in_kernel": True,
    }  # fmt: skip


def mamba2_chunks(tokens: int) -> dict[str, Any]:
    B, C = torch.randn(2, BATCH, tokens, GROUPS, DEPTH)
    return {
        "hidden_states": torch.randn(BATCH, tokens, HEADS, WIDTH), "dt": torch.randn(BATCH, tokens, HEADS),
        "A": -torch.rand(HEADS), "B": B, "C": C, "chunk_size": 16, "D": torch.rand(HEADS),
        "dt_bias": torch.rand(HEADS), "initial_states": torch.randn(BATCH, HEADS, WIDTH, DEPTH), "dt_softplus": True,
        "dt_limit": (0.9, math.inf), "return_final_states": True,
    }  # fmt: skip


def mamba2_token() -> dict[str, Any]:
    rows, (B, C) = (HEADS, WIDTH), torch.randn(2, BATCH, GROUPS, DEPTH)
    return {
        "state": torch.randn(BATCH, *rows, DEPTH), "hidden_states": torch.randn(BATCH, *rows), "B": B, "C": C,
        "dt": torch.randn(BATCH, HEADS, 1).expand(BATCH, *rows), "A": -torch.rand(HEADS, 1, 1).expand(*rows, DEPTH),
        "D": torch.rand(HEADS, 1).expand(rows), "dt_bias": torch.rand(HEADS, 1).expand(rows), "dt_softplus": True,
        "z": torch.randn(BATCH, *rows),
    }  # fmt: skip


def mamba_tokens(tokens: int) -> dict[str, Any]:
    hidden_states, dt, z = torch.randn(3, BATCH, WIDTH, tokens)
    B, C = torch.randn(2, BATCH, DEPTH, tokens)
    return {
        "hidden_states": hidden_states, "dt": dt, "A": -torch.rand(WIDTH, DEPTH), "B": B, "C": C, "z": z,
        "D": torch.rand(WIDTH), "delta_bias": torch.rand(WIDTH), "delta_softplus": True, "return_last_state": True,
    }  # fmt: skip


def mamba_token() -> dict[str, Any]:
    given = mamba_tokens(1)
    token = {name: given[name].squeeze(-1) for name in ("hidden_states", "dt", "B", "C", "z")}
    state = torch.randn(BATCH, WIDTH, DEPTH)
    return {
        **token, "state": state, "A": given["A"], "D": given["D"], "dt_bias": given["delta_bias"], "dt_softplus": True
    }  # fmt: skip


def rwkv(tokens: int) -> dict[str, Any]:
    decay, first = torch.randn(2, WIDTH)
    key, value = torch.randn(2, BATCH, tokens, WIDTH)
    return {"time_decay": decay, "time_first": first, "key": key, "value": value, "return_state": True}


def convolution(tokens: int) -> dict[str, Any]:
    return {
        "hidden_states": torch.randn(BATCH, WIDTH, tokens), "weight": torch.randn(WIDTH, 4), "bias": torch.randn(WIDTH),
        "activation": "silu",
    }  # fmt: skip


CALLS = {
    (modeling_mamba, "mamba_selective_scan"): mamba_tokens(5),
    (modeling_mamba, "mamba_selective_state_update"): mamba_token(),
    (modeling_rwkv, "rwkv_linear_attention_cpu"): rwkv(5),
    (modeling_mamba2, "causal_conv1d_fn"): convolution(5),
    (modeling_mamba2, "causal_conv1d_update"): {**convolution(1), "conv_state": torch.randn(BATCH, WIDTH, 4)},
    (modeling_qwen3_5, "torch_chunk_gated_delta_rule"): delta_rule(70),
    (modeling_qwen3_5, "torch_recurrent_gated_delta_rule"): delta_rule(3),
    (modeling_kimi_linear, "chunk_kimi_delta_attention"): delta_rule(70, by_channel=True),
    (modeling_kimi_linear, "recurrent_kimi_delta_attention"): delta_rule(3, by_channel=True),
    (modeling_mamba2, "mamba2_chunk_scan"): mamba2_chunks(37),
    (modeling_mamba2, "mamba2_selective_state_update"): mamba2_token(),
}


@pytest.mark.parametrize(("place", "given"), CALLS.items(), ids=[name for _, name in CALLS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_replacement_computes_the_same(place: tuple[Any, str], given: dict[str, Any], dtype: torch.dtype) -> None:
    module, name = place
    kept = ("A", "dt_bias", "delta_bias")  # which the models compute in float32
    given = {
        key: each.to(dtype) if isinstance(each, Tensor) and key not in kept else each for key, each in given.items()
    }
    written = copy.deepcopy(given)
    got, want = KEPT[name](**written), getattr(module, name)(**given)
    for one, other in ((got, want), (written, given)):
        assert_close(one, other, 1e-5 if dtype == torch.float32 else None)


def test_every_file_of_transformers_has_known_parameters() -> None:
    """A parameter that a replacement does not have would leave the original in place."""
    found = set()
    for path in Path(transformers.models.__path__[0]).glob("*/modeling_*.py"):
        source = path.read_text()
        for node in ast.parse(source).body if any(name in source for name in KEPT) else ():
            if isinstance(node, ast.FunctionDef) and node.name in KEPT:
                names = {each.arg for each in node.args.args}
                assert names - {"z"} <= inspect.signature(KEPT[node.name]).parameters.keys(), path
                found.add(node.name)
    assert found == KEPT.keys()


def test_lightning_attention_continues_from_its_state() -> None:
    config = transformers.MiniMaxConfig(hidden_size=8, num_attention_heads=2, head_dim=4, block_size=4)
    layer, results = MiniMaxLightningAttention(config, 0).eval(), []
    for patches in ((), [each for each in PATCHES if "minimax" in each.target]):
        torch.manual_seed(0)
        cache = MiniMaxCache()
        with apply_patches(patches), torch.no_grad():
            calls = [layer(torch.randn(2, tokens, 8), None, torch.ones(2, tokens), cache) for tokens in (9, 3)]
        results.append((calls, cache.linear_cache))
    assert_close(results[1], results[0], 1e-5)


def test_a_call_of_packed_sequences_is_not_replaced() -> None:
    class Layer(modeling_qwen3_5.Qwen3_5RMSNormGated):
        __module__ = modeling_qwen3_5.__name__

    function = "torch_chunk_gated_delta_rule"
    with apply_patches(recurrence_patches([Layer(4)])), pytest.raises(ValueError, match="packed sequences"):
        getattr(modeling_qwen3_5, function)(**delta_rule(3), cu_seqlens=torch.tensor([0, 3]))


class Convolution(nn.Module):
    """Calls the function of a file of transformers, and has the class of another one as a child."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = modeling_mamba2.MambaRMSNormGated(4, 4)

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return modeling_mamba2.causal_conv1d_fn(x, weight)


def test_an_entry_of_the_user_has_precedence() -> None:
    def translation(op: Any, x: Any, weight: Any, bias: Any, activation: Any) -> Any:
        return op.Identity(x)

    example, function = (torch.randn(2, 3, 5), torch.randn(3, 4)), modeling_mamba2.causal_conv1d_fn
    for table, values in (({function: translation}, example[0]), ({}, Convolution()(*example))):
        program = fx_onnx.export(Convolution().eval(), example, custom_translation_table=table)
        assert_close(program(*example)[0], values, 1e-5)


def decoder(model_type: str) -> nn.Module:
    """Returns a small model of two layers whose weights have the deviation 1/√inputs, so that its state matters."""
    model = next(family for family in FAMILIES if family.name == model_type).build()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=weight[0].numel() ** -0.5)
    return model


@pytest.mark.parametrize("model_type", ["qwen3_5_text", "mamba2", "mamba"])
@torch.no_grad()
def test_a_decoder_continues_from_its_state(model_type: str) -> None:
    """Prompts beyond a chunk, then one token and five tokens; a state of zeros gives other logits."""
    model = decoder(model_type)
    arguments = fx_onnx.text_generation_arguments(model, padding=False)
    program = fx_onnx.export(model, **arguments)
    assert not [each for each in program.findings if each.id in ("FX1202", "FX1203")]
    name = "cache_params" if "cache_params" in arguments["kwargs"] else "past_key_values"
    sizes = {"batch": 2, "past": 0}
    empty = [torch.zeros([sizes.get(str(dim), dim) for dim in each.shape]) for each in program.model.graph.inputs[1:]]
    for tokens in (65, 130):
        ids, state = torch.randint(3, 99, (2, tokens + 6)), empty
        cache = transformers.DynamicCache(config=model.config)
        whole = model(input_ids=ids).logits.split([tokens, 1, 5], 1)
        for step, logits_of_text in zip(ids.split([tokens, 1, 5], 1), whole, strict=True):
            before, (logits, *state) = state, program(step, *state)
            assert_close(logits, logits_of_text, 1e-4)
            if model_type != "mamba":  # several tokens of Mamba ignore the state
                result = model(input_ids=step, use_cache=True, **{name: cache})
                cache = getattr(result, name)
                assert_close(logits, result.logits, 1e-4)
        without = program(step, *(each if each.shape[2:3] == (tokens + 1,) else 0 * each for each in before))[0]
        assert (without - logits).abs().max() > 1e-3 * logits.abs().max()


def test_the_table_has_the_recurrences() -> None:
    assert TABLE["recurrences"].keys() == KEPT.keys()


@pytest.mark.parametrize("row", sorted(set(TABLE["patches"].values())))
def test_the_table_has_the_replacements(row: str) -> None:
    listed = [target for target, other in TABLE["patches"].items() if other == row]
    assert listed == [patch.target for patch in find("patches", listed[0])]
