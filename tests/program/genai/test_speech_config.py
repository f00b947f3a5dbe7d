"""Tests of the config of Whisper for onnxruntime-genai, whose names are those of the exported files."""

from __future__ import annotations

import json
from pathlib import Path

import onnxruntime
import pytest
import torch
import transformers

from fx_onnx.core.errors import ArgumentError
from fx_onnx.pretrained.export_pretrained import export_pretrained
from fx_onnx.program.genai.speech_config import write_speech_config

_SIZES = {
    f"{part}_{name}": 1 if name == "layers" else 2
    for part in ("encoder", "decoder")
    for name in ("layers", "attention_heads")
}


def test_the_config_names_the_inputs_and_outputs_of_the_files(tmp_path: Path) -> None:
    config = transformers.WhisperConfig(
        **_SIZES, d_model=16, encoder_ffn_dim=16, decoder_ffn_dim=16, vocab_size=50, num_mel_bins=8,
        max_source_positions=50, max_target_positions=32, bos_token_id=1, eos_token_id=2, pad_token_id=2,
        decoder_start_token_id=1,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.WhisperForConditionalGeneration(config).save_pretrained(tmp_path / "source")
    transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1).save_pretrained(tmp_path / "source")
    export_pretrained(tmp_path / "source", tmp_path / "out", layout="genai")
    found = json.loads((tmp_path / "out" / "genai_config.json").read_text())
    assert found["model"]["type"] == "whisper" and found["model"]["eos_token_id"] == 2
    for name in ("encoder", "decoder"):
        part = found["model"][name]
        session = onnxruntime.InferenceSession(tmp_path / "out" / part["filename"])
        for kind, values in (("inputs", session.get_inputs()), ("outputs", session.get_outputs())):
            assert {each.replace("%d", "0") for each in part[kind].values()} == {each.name for each in values}


def test_other_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"runs no t5: .* it runs Whisper; choose another layout"):
        write_speech_config(tmp_path, config={"model_type": "t5"}, generation_config=None)
