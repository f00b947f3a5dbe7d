"""Tests of Moonshine for sherpa-onnx, in sherpa-onnx where it is installed."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

pytest.importorskip("transformers", reason="transformers is in the extra 'test'", exc_type=ImportError)

import transformers
from tokenizers import Tokenizer, decoders, models

import fx_onnx
from fx_onnx.messages.errors import ArgumentError

_SPECIAL = ("<unk>", "<s>", "</s>")
_WORDS = [*_SPECIAL, "<0x21>", *(f"\u2581{letter}" for letter in "abcdef"), *map(chr, range(48, 123))]

_TEXTS = [word.replace("\u2581", " ").replace("<0x21>", "!") for word in _WORDS]


def _model(**options: Any) -> Any:
    config = transformers.MoonshineConfig(
        vocab_size=len(_WORDS), hidden_size=32, intermediate_size=64, encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=2, encoder_num_attention_heads=2, decoder_num_attention_heads=2,
        initializer_range=0.3, **options,
    )  # fmt: skip
    torch.manual_seed(1)
    return transformers.MoonshineForConditionalGeneration(config).eval()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a small Moonshine, whose feature extractor gives a mask."""
    folder = tmp_path_factory.mktemp("moonshine")
    _model().save_pretrained(folder)
    numbers = {word: number for number, word in enumerate(_WORDS)}
    tokenizer = Tokenizer(models.BPE(numbers, [], byte_fallback=True, unk_token="<unk>"))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    names = dict(zip(("unk_token", "bos_token", "eos_token"), _SPECIAL, strict=True))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    options = {"sampling_rate": 16000, "do_normalize": False, "return_attention_mask": True}
    transformers.Wav2Vec2FeatureExtractor(**options).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the exported folder."""
    out = tmp_path_factory.mktemp("exports") / "out"
    fx_onnx.export_pretrained(source, out, layout="sherpa-onnx")
    return out


def _sound(samples: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(samples).normal(0, 0.1, samples).astype(np.float32)


def _expected(source: Path, sound: np.ndarray[Any, Any], count: int) -> list[int]:
    model = transformers.MoonshineForConditionalGeneration.from_pretrained(source)
    ids = model.generate(torch.from_numpy(sound)[None], max_new_tokens=count, min_new_tokens=count, do_sample=False)
    return ids[0, 1:].tolist()  # type: ignore[no-any-return]


def test_the_tokens_equal_those_of_transformers(source: Path, folder: Path) -> None:
    """Gives the inputs by their order, as sherpa-onnx does."""
    encoder = onnxruntime.InferenceSession(folder / "encoder_model.onnx")
    decoder = onnxruntime.InferenceSession(folder / "decoder_model_merged.onnx")
    names = [value.name for value in decoder.get_inputs()]
    assert [value.name for value in encoder.get_inputs()] == ["input_values"] and len(names) == 3 + 4 * 2
    (states,) = encoder.run(None, {"input_values": _sound(16000)[None]})
    caches, token, tokens = [np.zeros((1, 2, 0, 16), np.float32)] * 8, 1, []
    for step in range(20):
        given = (np.array([[token]]), states, *caches, np.array([step > 0]))
        logits, *new = decoder.run(None, dict(zip(names, given, strict=True)))
        caches = new if step == 0 else [new[place] if place % 4 < 2 else caches[place] for place in range(8)]
        logits[..., 2] = -np.inf  # no end before 20 tokens
        token = int(logits[0, -1].argmax())
        tokens.append(token)
    assert tokens == _expected(source, _sound(16000), 20) and len({*tokens}) > 3


def test_tokens_are_told_by_their_bytes(folder: Path) -> None:
    lines = [line.split() for line in (folder / "tokens.txt").read_text().splitlines()]
    found = {int(number): base64.b64decode(text) for text, number in lines}
    assert found == {number: text.encode() for number, text in enumerate(_TEXTS) if number > 2}


@pytest.mark.parametrize("samples", [16000, 40000, 64000])
def test_sherpa_onnx_finds_these_tokens(source: Path, folder: Path, samples: int) -> None:
    sherpa = pytest.importorskip("sherpa_onnx", reason="sherpa-onnx is not installed")
    files = ("encoder_model.onnx", "decoder_model_merged.onnx", "tokens.txt")
    recognizer = sherpa.OfflineRecognizer.from_moonshine_v2(*(str(folder / name) for name in files))
    stream = recognizer.create_stream()
    stream.accept_waveform(16000, _sound(samples))
    recognizer.decode_stream(stream)
    found = stream.result.tokens
    expected = [_TEXTS[number] for number in _expected(source, _sound(samples), len(found) + 9) if number > 2]
    assert len(found) > 9 and found == expected[: len(found)]


def test_another_first_token_is_refused(tmp_path: Path) -> None:
    message = "In sherpa-onnx, decoder_start_token_id of Moonshine is 1, but it is 3 in the config"
    with pytest.raises(ArgumentError, match=message):
        fx_onnx.export_pretrained(_model(decoder_start_token_id=3), tmp_path / "out", layout="sherpa-onnx")


def test_other_models_are_refused(tmp_path: Path) -> None:
    config = transformers.BertConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1, intermediate_size=8)
    with pytest.raises(ArgumentError, match="sherpa-onnx loads whisper, moonshine and modules of the task stream, not"):
        fx_onnx.export_pretrained(transformers.BertModel(config), tmp_path / "out", layout="sherpa-onnx")
