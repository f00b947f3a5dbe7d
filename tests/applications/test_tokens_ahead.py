"""Tests of the layers of a decoder that predict more tokens than the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

pytest.importorskip("transformers", reason="transformers is in the extra 'test'", exc_type=ImportError)

import transformers
from safetensors.torch import load_file, save_file
from transformers import modeling_layers

from fx_onnx.applications.export_pretrained import export_pretrained
from fx_onnx.messages.errors import ArgumentError

_SIZES = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 4, "head_dim": 8}
_EXPERTS = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 16}
_LAYERS = {"num_hidden_layers": 2, "first_k_dense_replace": 1, "num_key_value_heads": 2}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A decoder whose checkpoint has one more layer, as those of GLM-4 MoE have."""
    if not hasattr(modeling_layers, "MtpModel"):
        pytest.skip("this version of transformers has no MtpModel")
    config = transformers.Glm4MoeConfig(**_SIZES, **_EXPERTS, **_LAYERS, num_mtp_layers=1)
    kind = transformers.Glm4MoeForCausalLM
    monkeypatch.setattr(kind, "_keys_to_ignore_on_load_unexpected", [r"model\.layers\.2.*"])
    made = kind(config)
    layers = modeling_layers.MtpModel(made, 1).layers
    for weight in (*made.parameters(), *layers.parameters()):
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.2)
    made.save_pretrained(tmp_path / "source")
    file = tmp_path / "source" / "model.safetensors"
    weights = load_file(file)
    for path, value in layers[0].state_dict().items():
        is_own = not path.startswith("mtp_block.")  # of the layer, beside those of the decoder's layers
        renamed = path.replace("post_norm", "shared_head.norm") if is_own else path.removeprefix("mtp_block.")
        name = f"model.layers.2.{renamed}"
        parts = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}.get(name.rpartition(".")[2])
        if parts is None:
            weights[name] = value.clone()
            continue
        for expert, rows in enumerate(value):
            for part, weight in zip(parts, rows.chunk(len(parts)), strict=True):
                weights[f"{name.rpartition('.')[0]}.{expert}.{part}.weight"] = weight.clone()
    save_file(weights, file, metadata={"format": "pt"})
    return kind.from_pretrained(tmp_path / "source").eval()


def test_a_second_program_predicts_the_token_after_the_next(model: Any, tmp_path: Path) -> None:
    files = export_pretrained(tmp_path / "source", tmp_path / "out", task="multi-token-prediction")
    assert [file.name for file in files] == ["model.onnx", "mtp.onnx"]
    stored = onnx.load(tmp_path / "out" / "mtp.onnx", load_external_data=False)
    locations = {
        entry.value for value in stored.graph.initializer for entry in value.external_data if entry.key == "location"
    }
    assert "model.onnx.data" in locations  # the embeddings and the head
    decoder, ahead = (onnxruntime.InferenceSession(tmp_path / "out" / file.name) for file in files)
    ids = np.arange(5, 12)[None]
    empty = {
        f"past_key_values.{layer}.{kind}": np.zeros((1, 2, 0, 8), np.float32)
        for layer in (0, 1)
        for kind in ("key", "value")
    }
    places = np.arange(7)[None]
    given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "position_ids": places, **empty}
    logits, states = decoder.run(["logits", "hidden_states"], given)
    following = np.concatenate([ids[:, 1:], logits[:, -1:].argmax(-1)], 1)
    given = {"input_ids": following, "hidden_states": states, "position_ids": places + 1}
    found = ahead.run(["candidate_ids", "candidate_logits"], given | {name: empty[name] for name in [*empty][:2]})
    layers = modeling_layers.MtpModel.from_pretrained(model).eval()
    with torch.no_grad():
        last = model(torch.from_numpy(ids), output_hidden_states=True).hidden_states[-1]
        cache = transformers.cache_utils.MtpCache(config=model.config.get_mtp_config())
        expected = layers(torch.from_numpy(following), last, None, torch.from_numpy(places + 1), cache)
    assert found[0].tolist() == expected[0].tolist()
    np.testing.assert_allclose(found[1], expected[1].numpy(), rtol=1e-3, atol=1e-4)


def test_a_model_without_such_layers_is_refused(tmp_path: Path) -> None:
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**small, vocab_size=50))
    with pytest.raises(ArgumentError, match="no layers for more tokens of llama: its config has no num_mtp_layers"):
        export_pretrained(model, tmp_path / "out", task="multi-token-prediction")
