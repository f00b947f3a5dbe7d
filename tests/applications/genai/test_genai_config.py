"""The content of genai_config.json."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fx_onnx.applications.genai.genai_config import genai_config, settings
from fx_onnx.messages.errors import ArgumentError
from tests.applications.genai.decoder_examples import INTERFACE
from tests.models.decoders import tokenizer, transformers


def test_the_content() -> None:
    values = {"max_position_embeddings": 64, "eos_token_id": [5, 6], "hidden_size": 16, "temperature": 0.5}
    assert genai_config(INTERFACE, "m.onnx", values, shared_buffer=False) == {
        "model": {
            "type": "decoder",
            "context_length": 64,
            "vocab_size": 99,
            "eos_token_id": [5, 6],
            "pad_token_id": 5,
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "filename": "m.onnx",
                "head_size": 8,
                "num_key_value_heads": 2,
                "num_hidden_layers": 2,
                "hidden_size": 16,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past.%d.key",
                    "past_value_names": "past.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": {"temperature": 0.5, "max_length": 64, "past_present_share_buffer": False},
    }


def test_the_first_source_with_a_value_wins() -> None:
    config = transformers.LlamaConfig(max_position_embeddings=64, eos_token_id=7, bos_token_id=8, pad_token_id=None)
    generation = transformers.GenerationConfig(eos_token_id=[7, 9], do_sample=True, top_k=3)
    found = settings(generation, config, tokenizer())
    names = ("max_position_embeddings", "eos_token_id", "bos_token_id", "pad_token_id", "top_k")
    assert [found[name] for name in names] == [64, [7, 9], 8, 0, 3]
    assert settings(None, {"eos_token_id": 0})["eos_token_id"] == 0


def test_the_config_of_a_model_of_images_and_text() -> None:
    config = transformers.Gemma3Config(text_config={"max_position_embeddings": 77})
    assert settings(config)["max_position_embeddings"] == 77


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"eos_token_id": 1}, "needs the largest number of tokens"),
        ({"max_position_embeddings": 64}, "needs the token that ends a text"),
        ({"max_position_embeddings": 64, "eos_token_id": []}, "needs the token that ends a text"),
    ],
)
def test_missing_values(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        genai_config(INTERFACE, "m.onnx", values, shared_buffer=False)


def test_a_wrong_source() -> None:
    with pytest.raises(ArgumentError, match="must be configs of transformers or dicts, not 3"):
        settings(3)


def test_states_of_convolutions_alone_need_the_type_of_lfm2() -> None:
    values = {"max_position_embeddings": 64, "eos_token_id": 5, "hidden_size": 16}
    states = {"conv": "past.%d.conv"}
    for past, kind in ((states, "lfm2"), ({**states, "recurrent": "past.%d.recurrent"}, "decoder")):
        hybrid = replace(INTERFACE, past=INTERFACE.past | past, conv_layers=frozenset({0}), conv_shape=(16, 3))
        found = genai_config(hybrid, "m.onnx", values, shared_buffer=False)["model"]
        assert found["type"] == kind
        assert found["decoder"]["inputs"]["past_conv_names"] == "past.%d.conv"
        assert found["decoder"].get("layer_types") == (["conv", "full_attention"] if kind == "lfm2" else None)
        assert found["decoder"].get("conv_cache_size") == (3 if kind == "lfm2" else None)
