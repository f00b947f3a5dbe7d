"""Tests of the features of sounds, as onnxruntime-genai runs them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is in the extra 'test'", exc_type=ImportError)

import fx_onnx
from fx_onnx.applications.genai.sound_modules import FramesOfSound
from tests.models.image_readers import READERS, build, tokenizer
from tests.one_capture import equal_parts_once

_NAME = "gemma4 with sounds"
_CAPTURES: dict[str, Any] = {}
"""The captures of the four parts, which two folders have."""


@torch.no_grad()
@pytest.mark.parametrize("right", [0, 2])
def test_the_features_are_those_of_transformers(right: int) -> None:
    model = build(_NAME)
    model.config.audio_config.attention_context_right = right
    model = type(model)(model.config).eval()
    module = FramesOfSound(model)
    for frames in (1, 4, 5, 12, 13, 48, 77):
        sound, mask = torch.randn(1, frames, 32), torch.ones(1, frames, dtype=torch.bool)
        expected = model.model.get_audio_features(sound, mask).pooler_output[0]
        torch.testing.assert_close(module(sound)["audio_features"], expected, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the exported folder."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("exports") / "out"
    torch.manual_seed(0)
    build(_NAME).save_pretrained(source)
    tokenizer(_NAME).save_pretrained(source)
    options = {"task": "image-text-to-text", "layout": "genai", "processor": READERS[_NAME].processor()}
    with equal_parts_once(_CAPTURES):
        fx_onnx.export_pretrained(source, out, **options)
    return out


def test_the_configs_name_the_program_of_sounds(folder: Path) -> None:
    found = json.loads((folder / "genai_config.json").read_text())["model"]["speech"]
    assert (found["filename"], found["inputs"]) == ("speech.onnx", {"audio_embeds": "audio_embeds"})
    rows = json.loads((folder / found["config_filename"]).read_text())["feature_extraction"]["sequence"]
    decoder, frames = (row["operation"] for row in rows)
    assert (decoder["type"], frames["type"]) == ("AudioDecoder", "Gemma4LogMel")
    expected = {"feature_size": 32, "frame_length_ms": 20.0, "hop_length_ms": 10.0, "per_bin_stddev": [2.0] * 32}
    assert expected.items() <= frames["attrs"].items()


@pytest.mark.parametrize(("images", "sound"), [((), True), ((0,), True), ((0,), False), ((), False)])
def test_onnxruntime_genai_finds_the_tokens_of_transformers(folder: Path, images: tuple[int, ...], sound: bool) -> None:
    pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai is not installed")
    from benchmarks.applications_genai import cell

    torch.manual_seed(0)
    sizes = tuple(READERS[_NAME].sizes[number] for number in images)
    assert cell(_NAME, folder, build(_NAME), sizes, hears=sound).startswith("20 of 20")


def test_a_folder_without_a_feature_extractor_takes_no_sounds(tmp_path: Path) -> None:
    processors = SimpleNamespace(
        image_processor=READERS[_NAME].processor().image_processor, save_pretrained=lambda _: None
    )
    options = {"task": "image-text-to-text", "layout": "genai", "processor": processors, "verify": False}
    warned = pytest.warns(match="The folder takes no sounds, because the source has no feature extractor")
    with warned, equal_parts_once(_CAPTURES):
        fx_onnx.export_pretrained(build(_NAME), tmp_path / "out", **options)
    assert json.loads((tmp_path / "out/genai_config.json").read_text())["model"]["speech"] == {"config_filename": ""}
