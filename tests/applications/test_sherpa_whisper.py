"""Tests of Whisper for sherpa-onnx, in sherpa-onnx where it is installed."""

from __future__ import annotations

import base64
import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

pytest.importorskip("transformers", reason="transformers is in the extra 'test'", exc_type=ImportError)

import transformers

import fx_onnx
from fx_onnx.messages.errors import ArgumentError

_SPECIAL = (
    *("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>"),
    *("<|nospeech|>", "<|notimestamps|>"),
)
_WORDS = [*map(chr, range(33, 127)), *_SPECIAL]
_NUMBERS = {word: number for number, word in enumerate(_WORDS)}
_END, _START, _NO_TIMESTAMPS = (_NUMBERS[word] for word in (_SPECIAL[0], _SPECIAL[1], _SPECIAL[-1]))
_PROMPT = [_NUMBERS[word] for word in ("<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>")]
_LENGTH = 64
_SIZES = {f"{part}_{name}": 2 for part in ("encoder", "decoder") for name in ("layers", "attention_heads")}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a small Whisper with a word for each letter of ASCII."""
    config = transformers.WhisperConfig(
        **_SIZES, d_model=32, encoder_ffn_dim=32, decoder_ffn_dim=32, vocab_size=len(_WORDS), num_mel_bins=80,
        max_source_positions=1500, max_target_positions=_LENGTH, bos_token_id=_END, eos_token_id=_END,
        pad_token_id=_END, decoder_start_token_id=_START, init_std=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.WhisperForConditionalGeneration(config)
    generation = model.generation_config
    generation._from_model_config, generation.suppress_tokens = False, None
    generation.no_timestamps_token_id, generation.begin_suppress_tokens = _NO_TIMESTAMPS, [32, _END]
    generation.lang_to_id = {word: _NUMBERS[word] for word in ("<|en|>", "<|de|>")}
    generation.task_to_id = {word: _NUMBERS[f"<|{word}|>"] for word in ("translate", "transcribe")}
    folder = tmp_path_factory.mktemp("whisper")
    model.save_pretrained(folder)
    vocabulary = {word: number for word, number in _NUMBERS.items() if number <= _END}
    tokenizer = transformers.WhisperTokenizerFast(vocab=vocabulary, merges=[], unk_token=_SPECIAL[0])
    tokenizer.add_special_tokens({"additional_special_tokens": list(_SPECIAL[1:])})
    tokenizer.save_pretrained(folder)
    transformers.WhisperFeatureExtractor(feature_size=80).save_pretrained(folder)
    return folder


def _expected(folder: Path, mel: np.ndarray[Any, Any], count: int, prompt: list[int] = _PROMPT) -> list[int]:
    """Returns the greedy tokens of transformers, whose encoder takes as many frames as its config tells."""
    whole = transformers.WhisperForConditionalGeneration.from_pretrained(folder)
    positions = mel.shape[2] // 2
    config = copy.deepcopy(whole.config)
    config.max_source_positions = positions
    model, weights = transformers.WhisperForConditionalGeneration(config).eval(), whole.state_dict()
    weights["model.encoder.embed_positions.weight"] = weights["model.encoder.embed_positions.weight"][:positions]
    model.load_state_dict(weights)
    ids = torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(count):
            logits = model(torch.from_numpy(mel), decoder_input_ids=ids).logits
            ids = torch.cat([ids, logits[:, -1].argmax(-1)[:, None]], 1)
    return ids[0].tolist()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def folder(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the exported folder."""
    out = tmp_path_factory.mktemp("exports") / "out"
    fx_onnx.export_pretrained(source, out, layout="sherpa-onnx")
    return out


def test_the_tokens_equal_those_of_transformers(source: Path, folder: Path) -> None:
    encoder, decoder = (onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("encoder", "decoder"))
    mel = np.random.default_rng(0).normal(0, 0.5, (1, 80, 3000)).astype(np.float32)
    cross = encoder.run(None, {"mel": mel})
    caches = [np.zeros((2, 1, _LENGTH, 32), np.float32)] * 2
    tokens, new = list(_PROMPT), list(_PROMPT)
    names = [value.name for value in decoder.get_inputs()]
    for _ in range(20):
        given = (np.array([new]), *caches, *cross, np.array([len(tokens) - len(new)]))
        logits, *caches = decoder.run(None, dict(zip(names, given, strict=True)))
        new = [int(logits[0, -1].argmax())]
        tokens += new
    assert tokens == _expected(source, mel, 20)


def test_a_sound_may_be_shorter(folder: Path) -> None:
    encoder = onnxruntime.InferenceSession(folder / "encoder.onnx")
    for frames in (100, 101, 1999):
        keys, values = encoder.run(None, {"mel": np.zeros((1, 80, frames), np.float32)})
        assert keys.shape == values.shape == (2, 1, (frames + 1) // 2, 32)


def test_the_metadata_has_the_sizes_and_the_tokens(folder: Path) -> None:
    told = {entry.key: entry.value for entry in onnx.load(folder / "encoder.onnx").metadata_props}
    expected = {"n_mels": "80", "n_text_layer": "2", "n_text_ctx": "64", "n_text_state": "32", "eot": str(_END)}
    expected |= {"sot_sequence": ",".join(map(str, _PROMPT[:3])), "all_language_codes": "de,en"}
    assert expected.items() <= told.items()
    first, *_ = (folder / "tokens.txt").read_text().splitlines()
    assert base64.b64decode(first.split()[0]) == b"!" and first.split()[1] == "0"


def _features(sound: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns the spectrogram that sherpa-onnx computes, with 100 frames of padding."""
    fbank = pytest.importorskip("kaldi_native_fbank", reason="kaldi-native-fbank is not installed")
    computer = fbank.OnlineWhisperFbank(fbank.WhisperFeatureOptions())
    computer.accept_waveform(16000, sound.tolist())
    computer.input_finished()
    frames = np.log10(np.maximum([computer.get_frame(place) for place in range(computer.num_frames_ready)], 1e-10))
    frames = (np.maximum(frames, frames.max() - 8) + 4) / 4
    return np.pad(frames, [(0, 100), (0, 0)]).T[None].astype(np.float32)


@pytest.mark.parametrize(("language", "task"), [("en", "transcribe"), ("de", "translate")])
def test_sherpa_onnx_finds_these_tokens(source: Path, folder: Path, language: str, task: str) -> None:
    sherpa = pytest.importorskip("sherpa_onnx", reason="sherpa-onnx is not installed")
    files = {name: str(folder / name) for name in ("encoder.onnx", "decoder.onnx", "tokens.txt")}
    recognizer = sherpa.OfflineRecognizer.from_whisper(*files.values(), language=language, task=task, tail_paddings=100)
    stream = recognizer.create_stream()
    sound = np.random.default_rng(0).normal(0, 0.1, 4 * 16000).astype(np.float32)
    stream.accept_waveform(16000, sound)
    recognizer.decode_stream(stream)
    prompt = [_START, _NUMBERS[f"<|{language}|>"], _NUMBERS[f"<|{task}|>"], _NO_TIMESTAMPS]
    expected = _expected(source, _features(sound), 40, prompt)[len(prompt) :]
    letters = "".join(_WORDS[number] for number in expected if number < _END)
    assert len(stream.result.tokens) > 10 and letters.startswith("".join(stream.result.tokens))


def test_a_model_without_its_tokens_is_refused(source: Path, tmp_path: Path) -> None:
    model = transformers.WhisperForConditionalGeneration.from_pretrained(source)
    model.generation_config.no_timestamps_token_id = None
    with pytest.raises(ArgumentError, match="set no_timestamps_token_id in the generation config"):
        fx_onnx.export_pretrained(model, tmp_path / "out", layout="sherpa-onnx")
