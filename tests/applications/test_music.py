"""Tests of the parts of MusicGen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import transformers

import fx_onnx
from fx_onnx.applications.inputs import input_names
from fx_onnx.applications.music import music
from fx_onnx.applications.source import find_row
from fx_onnx.messages.errors import ArgumentError
from tests.compare import assert_close

_SMALL = {"hidden_size": 16, "ffn_dim": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_codebooks": 4}


def _model(channels: int = 1) -> Any:
    torch.manual_seed(0)
    config = transformers.MusicgenConfig(
        text_encoder=transformers.T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=30),
        audio_encoder=transformers.EncodecConfig(
            num_filters=2,
            hidden_size=4,
            codebook_dim=4,
            codebook_size=16,
            num_lstm_layers=1,
            upsampling_ratios=[2],
            sampling_rate=200,
            target_bandwidths=[2.0],
        ),
        decoder=transformers.MusicgenDecoderConfig(
            **_SMALL, vocab_size=16, pad_token_id=16, bos_token_id=None, audio_channels=channels
        ),
    )
    model = transformers.MusicgenForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def test_three_parts_compute_what_the_model_computes(tmp_path: Path) -> None:
    model = _model()
    name, row = find_row(model.config, None, "MusicgenForConditionalGeneration")
    assert (name, row.parts) == ("text-to-audio", music)
    texts, decoder, codec = music(model, row.outputs, {})
    assert [each.name for each in (texts, decoder, codec)] == ["text_encoder", "decoder_model_merged", "encodec_decode"]
    past = [f"past_key_values.0.{part}.{kind}" for part in ("decoder", "encoder") for kind in ("key", "value")]
    assert input_names(decoder.kwargs) == ["input_ids", "encoder_hidden_states", *past, "encoder_attention_mask"]
    with torch.no_grad():
        states = texts.module(**texts.kwargs)["last_hidden_state"]
        codes = torch.randint(16, (8, 6))
        want = model(**texts.kwargs, decoder_input_ids=codes).logits.numpy()
        codec_input = codec.kwargs["audio_codes"]
        sounds = model.audio_encoder.decode(codec_input, [None, None]).audio_values
        torch.testing.assert_close(codec.module(codec_input)["audio_values"], sounds)
    program = fx_onnx.export(
        decoder.module,
        kwargs=decoder.kwargs,
        dynamic_shapes=decoder.dynamic_shapes,
        input_names=input_names(decoder.kwargs),
        output_names=decoder.outputs,
    )
    program.save(tmp_path / "decoder.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "decoder.onnx")
    mask = texts.kwargs["attention_mask"].numpy()
    fixed = {"encoder_hidden_states": states.numpy(), "encoder_attention_mask": mask}
    cache = {key: np.zeros((8, 2, 0, 8), np.float32) for key in past}  # the client makes it for the rows of the codes
    first, *new = session.run(None, {"input_ids": codes[:, :4].numpy(), **fixed, **cache})
    cache = dict(zip(past, new, strict=True))
    second = session.run(None, {"input_ids": codes[:, 4:].numpy(), **fixed, **cache})[0]
    assert_close(torch.from_numpy(np.concatenate([first, second], 1)), torch.from_numpy(want))


def test_two_channels_are_refused() -> None:
    with pytest.raises(ArgumentError, match="know sounds of one channel, not of 2; export it with"):
        music(_model(2), ("logits",), {})
