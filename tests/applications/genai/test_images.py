"""Tests of the parts of models that read images, as onnxruntime-genai runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

pytest.importorskip("transformers", reason="transformers is in the extra 'test'", exc_type=ImportError)

import transformers

from fx_onnx.applications.export_pretrained import export_pretrained
from fx_onnx.applications.genai import images
from fx_onnx.applications.genai.images import images_and_text
from fx_onnx.messages.errors import ArgumentError
from tests.models.image_readers import IMAGE, READERS, SOUND, build, tokenizer


@pytest.mark.parametrize("name", READERS)
def test_the_parts_compute_what_the_model_computes(name: str) -> None:
    model = build(name)
    vision, *speech, embedding, decoder = images_and_text(model)
    assert bool(READERS[name].sound) == bool(speech)
    with torch.no_grad():
        features = vision.module(**vision.kwargs)["image_features"]
        sounds = [part.module(**part.kwargs)["audio_features"] for part in speech]
        count = features.numel() // features.shape[-1]
        before, between, after = torch.tensor([[5, 6]]), torch.tensor([[7]]), torch.tensor([[8, 9]])
        image, other = (torch.full((1, size), IMAGE) for size in (count // 2, count - count // 2))
        heard = torch.full((1, sum(map(len, sounds))), SOUND)
        ids = torch.cat([before, image, between, other, heard, after], 1)
        embedded = embedding.module(ids, features, *sounds)
        whole = {"input_ids": ids} if "input_ids" in decoder.kwargs else {}
        given = {"attention_mask": torch.ones_like(ids), "position_ids": torch.arange(ids.shape[1])[None]}
        cache = transformers.DynamicCache(config=model.config.get_text_config())
        found = decoder.module(**embedded, **whole, **given, past_key_values=cache)["logits"]
        if name == "mistral3":
            given["image_sizes"] = torch.tensor([vision.kwargs["pixel_values"].shape[-2:]])
        types = READERS[name].types
        pixels = {key.replace("pixel_position", "image_position"): value for key, value in vision.kwargs.items()}
        if types:
            given[types] = (ids == IMAGE) + 3 * (ids == SOUND).long()
        for part in speech:
            given["input_features"] = frames = part.kwargs["audio_embeds"]
            given["input_features_mask"] = torch.ones(frames.shape[:2], dtype=torch.bool)
        torch.testing.assert_close(found, model(input_ids=ids, **pixels, **given).logits, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_tokens_of_videos_are_padding_in_gemma4() -> None:
    """A small model may generate them."""
    model = build("gemma4")
    _, embedding, _ = images_and_text(model)
    video, padding = (torch.tensor([[5, token, 6]]) for token in (model.config.video_token_id, 0))
    found, expected = (embedding.module(ids, torch.zeros(0, 32)) for ids in (video, padding))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_other_masks_of_transformers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    family = images.FAMILIES["gemma3"]
    monkeypatch.setitem(
        images.FAMILIES,
        "gemma3",
        images.Family("gemma3", family.vision, family.examples, family.dims, lambda _: ("sliding_attention",)),
    )
    with pytest.raises(ArgumentError, match="masks the tokens of images in another way"):
        images_and_text(build("gemma3"))


def test_a_folder_has_three_programs_and_two_configs(tmp_path: Path) -> None:
    model = build("qwen2_5_vl")
    model.save_pretrained(tmp_path / "source")
    tokenizer("qwen2_5_vl").save_pretrained(tmp_path / "source")
    processor = READERS["qwen2_5_vl"].processor()
    files = export_pretrained(
        tmp_path / "source", tmp_path / "out", task="image-text-to-text", layout="genai", processor=processor
    )
    assert [file.name for file in files] == ["vision.onnx", "embedding.onnx", "model.onnx"]
    found = json.loads((tmp_path / "out" / "genai_config.json").read_text())["model"]
    assert (found["type"], found["image_token_id"], found["vision"]["patch_size"]) == ("qwen2_5_vl", IMAGE, 4)
    sessions = {}
    for name in ("vision", "embedding", "decoder"):
        sessions[name] = session = onnxruntime.InferenceSession(tmp_path / "out" / found[name]["filename"])
        for kind, values in (("inputs", session.get_inputs()), ("outputs", session.get_outputs())):
            names = {each.replace("%d", str(layer)) for each in found[name][kind].values() for layer in (0, 1)}
            assert names == {each.name for each in values}
    rows = json.loads((tmp_path / "out" / "processor_config.json").read_text())["processor"]["transforms"]
    kinds = ["DecodeImage", "Resize", "Rescale", "Normalize", "PatchImage"]
    assert [each["operation"]["type"] for each in rows] == kinds
    _assert_takes_other_images(sessions["vision"], model)


def _assert_takes_other_images(session: onnxruntime.InferenceSession, model: torch.nn.Module) -> None:
    for grid in ([[1, 2, 2]], [[1, 6, 10], [1, 4, 4], [1, 2, 8]], [[2, 8, 4]]):
        sizes = torch.tensor(grid)
        pixels = torch.randn(int(sizes.prod(-1).sum()), 96)
        given = {"pixel_values": pixels.numpy(), "image_grid_thw": sizes.numpy()}
        with torch.no_grad():
            expected = torch.cat(model.get_image_features(pixels, sizes).pooler_output)
        np.testing.assert_allclose(session.run(None, given)[0], expected.numpy(), rtol=1e-4, atol=1e-5)


_SMALL = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}


def _llava() -> Any:
    text = transformers.LlamaConfig(**_SMALL, num_hidden_layers=1, vocab_size=320, eos_token_id=2)
    vision = transformers.CLIPVisionConfig(**_SMALL, num_hidden_layers=1, image_size=8, patch_size=4)
    return transformers.LlavaForConditionalGeneration(
        transformers.LlavaConfig(vision_config=vision, text_config=text, image_token_index=300)
    )


def _phi4() -> Any:
    """Returns a model that has no ``get_image_features``."""
    encoders = {
        "vision_config": {**_SMALL, "num_hidden_layers": 1, "image_token_id": 300},
        "audio_config": {
            **_SMALL,
            "num_blocks": 1,
            "audio_token_id": 301,
            "nemo_conv_channels": 8,
            "ext_pw_out_channel": 16,
        },
    }
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    lengths = dict.fromkeys(("max_position_embeddings", "original_max_position_embeddings"), 64)
    text = {**_SMALL, "num_hidden_layers": 1, "num_key_value_heads": 2, "vocab_size": 320, **tokens, **lengths}
    return transformers.Phi4MultimodalForCausalLM(transformers.Phi4MultimodalConfig(**text, **encoders))


@pytest.mark.parametrize(("make", "kind"), [(_llava, "llava"), (_phi4, "phi4_multimodal")])
def test_a_model_whose_images_are_not_known_is_its_decoder_of_texts(
    make: Callable[[], Any], kind: str, tmp_path: Path
) -> None:
    with pytest.warns(match=f"has the decoder of texts of {kind} only; the layout has images of gemma3, "):
        (file,) = export_pretrained(make(), tmp_path / "out", layout="genai", verify=False)
    assert file.name == "model.onnx"
