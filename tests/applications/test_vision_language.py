"""Tests of the parts of decoders that read images."""

from __future__ import annotations

import torch
import transformers

import fx_onnx
from fx_onnx.applications.inputs import input_names
from fx_onnx.applications.vision_language import image_text_to_text

_SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def test_three_parts_compute_what_the_model_computes() -> None:
    torch.manual_seed(0)
    text = transformers.LlamaConfig(**_SMALL, vocab_size=50, num_key_value_heads=1)
    vision = transformers.CLIPVisionConfig(**_SMALL, image_size=8, patch_size=4)
    config = transformers.LlavaConfig(text_config=text, vision_config=vision, image_token_index=49)
    model = transformers.LlavaForConditionalGeneration(config).eval()
    images, tokens, decoder = image_text_to_text(model, ("logits",), {})
    assert [part.name for part in (images, tokens, decoder)] == [
        "vision_encoder",
        "embed_tokens",
        "decoder_model_merged",
    ]
    past = [f"past_key_values.{layer}.{kind}" for layer in range(2) for kind in ("key", "value")]
    assert input_names(decoder.kwargs) == ["inputs_embeds", "attention_mask", "position_ids", *past]
    assert decoder.outputs == ("logits", *(name.replace("past_key_values", "present") for name in past))
    ids = torch.tensor([[1, 2, 49, 49, 49, 49, 3]] * 2)
    with torch.no_grad():
        features = images.module(**images.kwargs)["image_features"]
        embeddings = tokens.module(ids)["inputs_embeds"]
        embeddings[ids == 49] = features
        found = decoder.module(inputs_embeds=embeddings).logits
        torch.testing.assert_close(found, model(input_ids=ids, **images.kwargs).logits)
    program = fx_onnx.export(images.module, kwargs=images.kwargs, dynamic_shapes=images.dynamic_shapes)
    for number in (1, 3):
        pixels = torch.randn(number, 3, 8, 8)
        (found,) = program(pixel_values=pixels)
        with torch.no_grad():
            torch.testing.assert_close(found, images.module(pixel_values=pixels)["image_features"])
