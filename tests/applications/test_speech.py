"""Tests of the parts of SpeechT5, and of a sound that a client makes with them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import transformers

import fx_onnx
from fx_onnx.applications.export_pretrained import export_pretrained
from fx_onnx.applications.source import read_source
from fx_onnx.messages.errors import ArgumentError
from tests.compare import assert_close

_ENCODER = {"encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 16}
_DECODER = {"decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 16}
_HEAD = {"speech_decoder_postnet_units": 8, "speech_decoder_postnet_layers": 1, "speaker_embedding_dim": 6}


def _model(layers: int) -> tuple[Any, Any]:
    """Returns a model and a vocoder.

    Args:
        layers: the number of layers before the decoder, which draw random numbers in evaluation mode too.
    """
    torch.manual_seed(0)
    frames = {"num_mel_bins": 12, "speech_decoder_prenet_units": 12, "speech_decoder_prenet_layers": layers}
    config = transformers.SpeechT5Config(**_ENCODER, **_DECODER, **_HEAD, **frames, vocab_size=30, hidden_size=16)
    vocoder = transformers.SpeechT5HifiGanConfig(
        model_in_dim=12,
        upsample_initial_channel=4,
        upsample_rates=[2],
        upsample_kernel_sizes=[4],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1]],
    )
    models = transformers.SpeechT5ForTextToSpeech(config).eval(), transformers.SpeechT5HifiGan(vocoder).eval()
    with torch.no_grad():
        for each in models:
            for parameter in each.parameters():
                parameter += 0.3 * torch.randn_like(parameter)
    return models


def _sound(folder: Path, ids: np.ndarray, speaker: np.ndarray, steps: int) -> np.ndarray:
    """Returns what a client makes."""
    encoder, decoder, vocoder = (
        onnxruntime.InferenceSession(folder / "onnx" / f"{name}.onnx")
        for name in ("encoder_model", "decoder_model_merged", "decoder_postnet_and_vocoder")
    )
    states, mask = encoder.run(["encoder_outputs", "encoder_attention_mask"], {"input_ids": ids})
    fixed = {"encoder_hidden_states": states, "encoder_attention_mask": mask, "speaker_embeddings": speaker}
    past = {each.name: each.shape for each in decoder.get_inputs() if each.name.startswith("past")}
    past = {name: np.zeros((1, shape[1], 0, shape[3]), np.float32) for name, shape in past.items()}
    names, sequence, parts = [each.name for each in decoder.get_outputs()], np.zeros((1, 1, 12), np.float32), []
    for _ in range(steps):
        found = dict(zip(names, decoder.run(None, {"output_sequence": sequence, **fixed, **past}), strict=True))
        past = {name: found[name.replace("past_key_values", "present")] for name in past}
        sequence = found["output_sequence_out"]
        parts.append(found["spectrum"])
    return vocoder.run(None, {"spectrogram": np.concatenate(parts)})[0]


def test_a_client_makes_the_sound_of_the_model(tmp_path: Path) -> None:
    model, vocoder = _model(layers=0)
    model.save_pretrained(tmp_path / "source")
    vocoder.save_pretrained(tmp_path / "source" / "vocoder")
    files = export_pretrained(tmp_path / "source", tmp_path / "out", layout="transformers.js")
    assert all(file.difference is not None and file.difference < 1e-4 for file in files)
    ids, speaker = torch.tensor([[3, 4, 5, 6, 1, 1, 1, 1]]), torch.randn(1, 6)  # 1 is padding
    want = model.generate_speech(ids, speaker, vocoder=vocoder, threshold=9, maxlenratio=2)
    found = _sound(tmp_path / "out", ids.numpy(), speaker.numpy(), 8)
    assert_close(torch.from_numpy(found[0]), want)


def test_a_model_without_a_vocoder_is_refused() -> None:
    model, _ = _model(layers=0)
    found = read_source(model, None, None, False)
    assert found.task == "text-to-audio"
    with pytest.raises(ArgumentError, match="SpeechT5ForTextToSpeech needs a vocoder: save one to the folder vocoder"):
        found.row.parts(model, found.row.outputs, {})


def test_a_pipeline_has_its_vocoder() -> None:
    model, vocoder = _model(layers=1)
    found = read_source(SimpleNamespace(model=model, task="text-to-audio", vocoder=vocoder), None, None, False)
    encoder, decoder, sound = found.row.parts(found.model, found.row.outputs, {})
    assert (encoder.name, decoder.name, sound.name) == (
        *("encoder_model", "decoder_model_merged"),
        "decoder_postnet_and_vocoder",
    )
    with torch.no_grad():
        program = fx_onnx.export(sound.module, kwargs=sound.kwargs, dynamic_shapes=sound.dynamic_shapes)
        spectrogram = torch.randn(9, 12)
        want = vocoder(model.speech_decoder_postnet.postnet(spectrogram[None]))
    assert_close(program(spectrogram=spectrogram)[0], want)
