"""Tests of the encoder of Mimi as a stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

pytest.importorskip("transformers", reason="transformers is in the extra 'test'", exc_type=ImportError)

import transformers

import fx_onnx
from fx_onnx.applications import codecs
from fx_onnx.messages.errors import ArgumentError

_SMALL = {"num_filters": 4, "hidden_size": 16, "upsampling_ratios": [4, 2], "num_residual_layers": 1}
_FRAME = 16


def _mimi(**options: Any) -> Any:
    """Returns a small Mimi, whose attention reads five frames."""
    config = transformers.MimiConfig(
        **_SMALL, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        codebook_size=32, codebook_dim=8, vector_quantization_hidden_dimension=8, num_quantizers=4, sliding_window=5,
        sampling_rate=16000, upsample_groups=16, layer_scale_initial_scale=1.0, **options,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.MimiModel(config).eval()
    for name, buffer in model.named_buffers():
        if name.endswith("embed_sum"):
            buffer.normal_()
    return model


def _codes(file: Path, sound: torch.Tensor, count: int) -> np.ndarray[Any, Any]:
    """Returns the codes of the chunks of a sound, beginning with the states that the metadata tells."""
    session = onnxruntime.InferenceSession(file)
    rows = json.loads(session.get_modelmeta().custom_metadata_map["states"])
    shapes = [[len(sound) if size == "batch" else size for size in row["shape"]] for row in rows]
    states = {row["input"]: np.zeros(shape, row["dtype"]) for row, shape in zip(rows, shapes, strict=True)}
    results = []
    for chunk in sound.chunk(count, -1):
        codes, *new = session.run(
            ["output", *(row["output"] for row in rows)], {"input_values": chunk.numpy(), **states}
        )
        states = dict(zip(states, new, strict=True))
        results.append(codes)
    return np.concatenate(results, -1)


@pytest.mark.parametrize("pad_mode", ["constant", "replicate"])
@pytest.mark.parametrize("frames", [1, 3])
def test_the_codes_of_chunks_are_those_of_the_whole(frames: int, pad_mode: str, tmp_path: Path) -> None:
    model = _mimi(pad_mode=pad_mode)
    model.save_pretrained(tmp_path / "source")
    inputs = {} if frames == 1 else {"input_values": torch.randn(3, 1, frames * _FRAME)}
    fx_onnx.export_pretrained(tmp_path / "source", tmp_path / "out", task="stream", inputs=inputs)
    sound = torch.randn(5, 1, 12 * frames * _FRAME)
    with torch.no_grad():
        expected = model.encode(sound).audio_codes
    assert len(expected.unique()) > 20
    np.testing.assert_array_equal(_codes(tmp_path / "out/model.onnx", sound, 12), expected.numpy())


def test_chunks_that_are_not_those_of_the_whole_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs._MimiEncoder, "_mask", lambda self, seen, length, dtype: torch.zeros(1, 1, 1, 1))
    with pytest.raises(ArgumentError, match="The chunks of this Mimi are not those of the whole sound: the largest"):
        codecs.codec_stream(_mimi(), {})


def _encodec() -> Any:
    return transformers.EncodecModel(transformers.EncodecConfig(**_SMALL, codebook_size=32)).eval()


@torch.no_grad()
def test_the_chunks_of_encodec_are_not_those_of_the_whole() -> None:
    model, sound, latents = _encodec(), torch.randn(1, 1, 64), torch.randn(1, 16, 8)
    for module, whole in ((model.encoder, sound), (model.decoder, latents)):
        parts = torch.cat([module(chunk) for chunk in whole.chunk(4, -1)], -1)
        assert (parts - module(whole)).abs().max() > 0.05 * module(whole).abs().max()


@pytest.mark.parametrize(
    ("make", "inputs", "message"),
    [
        (
            _encodec,
            {},
            "EncodecModel is no stream, because its convolutions and LSTM keep no state between calls; expo",
        ),
        (lambda: _mimi().decoder, {}, "MimiDecoderModel is no stream, because its transposed convolutions keep no"),
        (_mimi, {"input_values": torch.randn(3, 1, 24)}, "A chunk of Mimi must be a multiple of 16 samples, not 24"),
        (_mimi, {"past": torch.randn(3)}, "No part of the model takes the input 'past'"),
    ],
)
def test_what_is_no_stream_is_refused(make: Any, inputs: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=message):
        fx_onnx.export_pretrained(make(), tmp_path / "out", task="stream", inputs=inputs)
