"""Tests of the config of Whisper for onnxruntime-genai, whose names are those of the exported files."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

pytest.importorskip("transformers", reason="transformers is in the extra 'test'", exc_type=ImportError)

import transformers
from transformers.convert_slow_tokenizer import bytes_to_unicode

from fx_onnx.applications.export_pretrained import export_pretrained
from fx_onnx.applications.genai.speech_config import write_speech_config
from fx_onnx.messages.errors import ArgumentError

_SIZES = {
    f"{part}_{name}": 1 if name == "layers" else 2
    for part in ("encoder", "decoder")
    for name in ("layers", "attention_heads")
}


def test_the_config_names_the_inputs_and_outputs_of_the_files(tmp_path: Path) -> None:
    config = transformers.WhisperConfig(
        **_SIZES, d_model=16, encoder_ffn_dim=16, decoder_ffn_dim=16, vocab_size=300, num_mel_bins=8,
        max_source_positions=1500, max_target_positions=32, bos_token_id=1, eos_token_id=2, pad_token_id=2,
        decoder_start_token_id=1, init_std=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.WhisperForConditionalGeneration(config).eval()
    model.save_pretrained(tmp_path / "source")
    transformers.WhisperFeatureExtractor(feature_size=8).save_pretrained(tmp_path / "source")
    with pytest.raises(ArgumentError, match="cache='int8' is for decoders; leave it out for automatic-speech-recogn"):
        cache = {"cache": "int8", "calibration": [{"decoder_input_ids": torch.ones(1, 4, dtype=torch.int64)}]}
        export_pretrained(tmp_path / "source", tmp_path / "out", layout="genai", **cache)
    export_pretrained(tmp_path / "source", tmp_path / "out", layout="genai")
    found = json.loads((tmp_path / "out" / "genai_config.json").read_text())
    assert found["model"]["type"] == "whisper" and found["model"]["eos_token_id"] == 2
    for name in ("encoder", "decoder"):
        part = found["model"][name]
        session = onnxruntime.InferenceSession(tmp_path / "out" / part["filename"])
        for kind, values in (("inputs", session.get_inputs()), ("outputs", session.get_outputs())):
            assert {each.replace("%d", "0") for each in part[kind].values()} == {each.name for each in values}
    _compare_features(tmp_path / "out", model)


def _compare_features(folder: Path, model: Any) -> None:
    """The client's features are those of transformers, apart from two frames at each end, and its tokens are too."""
    operations = json.loads((folder / "audio_processor_config.json").read_text())["feature_extraction"]["sequence"]
    assert [each["operation"]["type"] for each in operations] == ["AudioDecoder", "STFTNorm", "LogMelSpectrum"]
    genai = pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai is not installed")
    tokens = {letter: number for number, letter in enumerate([*bytes_to_unicode().values(), "<|endoftext|>"])}
    transformers.WhisperTokenizerFast(vocab=tokens, merges=[], unk_token="<|endoftext|>").save_pretrained(folder)
    sound = np.random.default_rng(0).normal(0, 3000, 8000).astype("<i2")
    with wave.open(str(folder / "sound.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(sound.tobytes())
    program = genai.Model(str(folder))
    processor = program.create_multimodal_processor()
    inputs = processor(["a"], audios=genai.Audios.open(str(folder / "sound.wav")))
    found = inputs["audio_features"].as_numpy().copy()
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(folder)
    want = extractor(sound / np.float32(32768), sampling_rate=16000, return_tensors="np").input_features
    np.testing.assert_allclose(found[..., 2:50], want[..., 2:50], atol=1e-3)
    np.testing.assert_allclose(found[..., 52:], want[..., 52:], atol=1e-3)
    parameters = genai.GeneratorParams(program)
    parameters.set_search_options(max_length=21, do_sample=False)
    generator = genai.Generator(program, parameters)
    generator.set_inputs(inputs)
    while not generator.is_done():
        generator.generate_next_token()
    ids = torch.tensor([[tokens["a"]]])
    text = model.generate(torch.from_numpy(found), decoder_input_ids=ids, max_new_tokens=20, do_sample=False)[0]
    generated = [int(token) for token in generator.get_sequence(0)][1:]
    assert len(generated) > 5 and generated == text[-len(generated) :].tolist()


def test_other_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"runs no t5: .* it runs Whisper; choose another layout"):
        write_speech_config(tmp_path, config={"model_type": "t5"}, generation_config=None)
