"""The fusions of transformers' exporter for ONNX Runtime, in its export through torch.onnx and through fx_onnx."""

from __future__ import annotations

import copy
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
import torch

pytest.importorskip("transformers.exporters", reason="transformers 5.20 or newer is not installed")

from transformers import (
    BertConfig,
    BertModel,
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

import fx_onnx

SIZES = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 128}


def _bert(dtype: torch.dtype) -> tuple[PreTrainedModel, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    mask = torch.ones(2, 8, dtype=torch.int64)
    mask[1, 5:] = 0
    model = BertModel(BertConfig(**SIZES, vocab_size=99)).to(dtype).eval()
    return model, {"input_ids": torch.randint(1, 99, (2, 8)), "attention_mask": mask}


def _export(model: PreTrainedModel, inputs: dict[str, Any], provider: str, *, dynamic: bool, ours: bool) -> Any:
    with fx_onnx.replacing_torch_onnx() if ours else nullcontext():
        return OnnxExporter().export(model, dict(inputs), config=OnnxConfig(dynamic=dynamic, ort_fusions=provider))


@pytest.fixture(autouse=True)
def _one_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets transformers capture a model once: both exports of a test begin with copies of this program."""
    programs: dict[PreTrainedModel, torch.export.ExportedProgram] = {}
    capture = torch.export.export

    def export(model: PreTrainedModel, *args: Any, **options: Any) -> torch.export.ExportedProgram:
        if model in programs:
            model(**options["kwargs"])  # transformers reads the names of the outputs from a call
        else:
            programs[model] = capture(model, *args, **options)
        return copy.deepcopy(programs[model])

    monkeypatch.setattr(torch.export, "export", export)


def _operators(exported: Any) -> Counter[str]:
    return Counter(node.op_type for node in exported.program.graph.all_nodes())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_attentions_of_an_encoder(dtype: torch.dtype) -> None:
    """Each attention becomes one node for CUDA, as in the graph of torch.onnx, which has more nodes in all."""
    model, inputs = _bert(dtype)
    exported = _export(model, inputs, "cuda", dynamic=True, ours=True)
    theirs = _operators(_export(model, inputs, "cuda", dynamic=True, ours=False))
    found = _operators(exported)
    fused = "MultiHeadAttention", "SkipLayerNormalization", "BiasGelu", "Softmax"
    assert [found[name] for name in fused] == [theirs[name] for name in fused] == [1, 2, 1, 0]
    assert found.total() <= theirs.total()
    if dtype == torch.float32:  # the operator has no float16 kernel in the CPU provider
        want = model(**inputs).last_hidden_state.detach()
        torch.testing.assert_close(exported(**inputs).last_hidden_state, want, rtol=1e-4, atol=1e-4)


def test_static_shapes() -> None:
    found = _operators(_export(*_bert(torch.float16), "cuda", dynamic=False, ours=True))
    assert (found["MultiHeadAttention"], found["Softmax"]) == (1, 0)


def _decoder(config: Any, model: Any, dtype: torch.dtype, tokens: int, past: int) -> tuple[PreTrainedModel, Any]:
    torch.manual_seed(0)
    config = config(**SIZES, vocab_size=99, num_key_value_heads=2, head_dim=16)
    inputs = {"input_ids": torch.randint(1, 99, (2, tokens))}
    inputs["attention_mask"] = torch.ones(2, past + tokens, dtype=torch.int64)
    if past:
        cache = DynamicCache(config=config)
        for layer in range(config.num_hidden_layers):
            cache.update(*torch.randn(2, 2, 2, past, 16, dtype=dtype), layer)
        inputs |= {"position_ids": torch.full((2, tokens), past) + torch.arange(tokens), "past_key_values": cache}
    return model(config).to(dtype).eval(), inputs


@pytest.mark.parametrize(
    ("config", "model", "provider", "tokens", "past", "attentions"),
    [
        (LlamaConfig, LlamaForCausalLM, "cpu", 1, 5, {"GroupQueryAttention": 1}),
        (LlamaConfig, LlamaForCausalLM, "cpu", 5, 0, {"GroupQueryAttention": 1}),
        (LlamaConfig, LlamaForCausalLM, "cuda", 3, 5, {"MultiHeadAttention": 1, "RotaryEmbedding": 2}),
        (Qwen2Config, Qwen2ForCausalLM, "cuda", 1, 5, {"GroupQueryAttention": 1}),
        (Qwen3Config, Qwen3ForCausalLM, "cuda", 1, 5, {"GroupQueryAttention": 1}),
    ],
)
def test_attentions_of_a_decoder(
    config: Any, model: Any, provider: str, tokens: int, past: int, attentions: dict[str, int]
) -> None:
    """Each attention and each norm becomes one node, as in the graph of torch.onnx, which has no fewer nodes in all."""
    dtype = torch.float32 if provider == "cpu" else torch.float16
    module, inputs = _decoder(config, model, dtype, tokens, past)
    exported = _export(module, inputs, provider, dynamic=True, ours=True)
    theirs = _operators(_export(module, inputs, provider, dynamic=True, ours=False))
    found = _operators(exported)
    fused = {**attentions, "SkipSimplifiedLayerNormalization": 2, "SimplifiedLayerNormalization": 1}
    assert {name: found[name] for name in fused} == {name: theirs[name] for name in fused} == fused
    assert found.total() <= theirs.total()
    if provider == "cpu":
        want = module(**copy.deepcopy(inputs)).logits.detach()
        torch.testing.assert_close(exported(**inputs).logits, want, rtol=1e-4, atol=1e-4)
