"""Tests of the inputs that are derived from a model's forward."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import transformers

from fx_onnx.applications.inputs import example_inputs, input_names, larger_images, processed
from fx_onnx.applications.parts import one_graph
from fx_onnx.messages.errors import ArgumentError
from tests.models.decoders import tokenizer

_SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def test_a_network_without_a_fixed_size_takes_images_of_all_sizes() -> None:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1])
    model = transformers.AutoModelForImageClassification.from_config(config).eval()
    (part,) = one_graph(model, ("logits",), {})
    assert part.dynamic_shapes == {"pixel_values": {0: "batch", 2: "height", 3: "width"}}


def test_masks_of_images_have_their_height_and_width() -> None:
    config = transformers.ConditionalDetrConfig(backbone_config=transformers.ResNetConfig(depths=[1] * 4), d_model=16)
    with torch.device("meta"):
        model = transformers.ConditionalDetrModel(config)
    given = {"pixel_values": torch.ones(2, 3, 20, 30), "pixel_mask": torch.ones(2, 20, 30)}
    _, shapes = example_inputs(model, given)
    assert shapes["pixel_mask"] == {0: "batch", 1: "height", 2: "width"}


@pytest.mark.parametrize(
    ("size", "larger"), [((16, 32), (128, 160)), ((224, 224), (224, 448)), ((150, 40), (150, 160)), ((800, 1066), None)]
)
def test_larger_images_are_tiles_with_another_height_than_width(size: tuple[int, int], larger: Any) -> None:
    found = larger_images({"pixel_values": torch.ones(2, 3, *size), "pixel_mask": torch.ones(2, *size)})
    assert [image.shape[-2:] for image in found.values()] == ([] if larger is None else [larger] * 2)
    assert larger_images({"pixel_values": torch.ones(2, 3, 4), "x": torch.ones(2, 3, 4, 4)}) == {}


def test_types_of_tokens_are_an_input_if_the_model_has_several() -> None:
    for types, names in ((1, ["input_ids", "attention_mask"]), (2, ["input_ids", "attention_mask", "token_type_ids"])):
        config = transformers.BertConfig(**_SMALL, vocab_size=50, type_vocab_size=types)
        (part,) = one_graph(transformers.AutoModel.from_config(config).eval(), (), {})
        assert list(part.kwargs) == names


def test_what_cannot_be_derived_is_refused() -> None:
    config = transformers.T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, vocab_size=50)
    with pytest.raises(ArgumentError, match="T5Model does not run on the examples of input_ids, attention_mask"):
        one_graph(transformers.AutoModel.from_config(config).eval(), (), {})


def test_a_config_of_several_texts_is_refused() -> None:
    model = torch.nn.Embedding(3, 3)
    model.main_input_name, model.forward = "input_ids", lambda input_ids: input_ids
    model.config = transformers.EncoderDecoderConfig(encoder={"model_type": "bert"}, decoder={"model_type": "bert"})
    model.config.get_text_config = Mock(side_effect=ValueError("Multiple valid text configs were found."))
    with pytest.raises(ArgumentError, match=r"cannot be derived: .*Multiple valid text configs"):
        example_inputs(model)


def test_processors_make_real_inputs() -> None:
    sounds = transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1)
    found = processed([SimpleNamespace(tokenizer=tokenizer(), feature_extractor=sounds)])
    assert found["input_features"].shape == (2, 8, 100)
    assert found["input_ids"].shape == found["attention_mask"].shape and found["attention_mask"].min() == 0
    with pytest.raises(ArgumentError, match=r"WhisperFeatureExtractor does not take two plain examples: .*; pass its"):
        sounds.sampling_rate = "16000"
        processed([sounds])


def test_given_inputs_are_preferred() -> None:
    model = transformers.AutoModel.from_config(transformers.BertConfig(**_SMALL, vocab_size=50)).eval()
    ids = torch.ones(3, 4, dtype=torch.int64)
    kwargs, shapes = example_inputs(model, {"input_ids": ids, "labels": ids, "position_ids": ids})
    assert list(kwargs) == ["input_ids", "position_ids"] and kwargs["input_ids"] is ids
    assert shapes == {"input_ids": {0: "batch", 1: "sequence"}, "position_ids": {0: "batch"}}


def test_names_of_inputs_are_paths() -> None:
    x = torch.zeros(1)
    assert input_names({"a": x, "b": [{"key": x}, {"key": x}], "c": False}) == ["a", "b.0.key", "b.1.key"]


def test_a_mask_of_texts_is_no_input_of_an_encoder_of_sounds() -> None:
    config = transformers.WhisperConfig(
        d_model=16, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=16, num_mel_bins=8,
        max_source_positions=50, vocab_size=50, pad_token_id=0, eos_token_id=2, bos_token_id=1,
        decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=16, decoder_start_token_id=1,
    )  # fmt: skip
    encoder = transformers.WhisperForConditionalGeneration(config).get_encoder()
    texts = {name: torch.ones(2, 3, dtype=torch.int64) for name in ("input_ids", "attention_mask")}
    kwargs, _ = example_inputs(encoder, {**texts, "input_features": torch.randn(2, 8, 100)})
    assert list(kwargs) == ["input_features"]
