"""Tests of the metadata for sherpa-onnx, in sherpa-onnx where it is installed."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.messages.errors import ArgumentError

_SIZE, _WORDS, _SHIFT, _FRAMES = 16, 12, 4, 9
"""The size of results, the tokens, the frames from one chunk to the next, and the frames of a chunk."""


class _Lstm(nn.Module):
    model_type, decode_chunk_len = "lstm", _SHIFT

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(80, _SIZE, 6, stride=2)
        self.lstm = nn.LSTM(_SIZE, 24, 2, batch_first=True, proj_size=_SIZE)

    def forward(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        results, (hidden, cell) = self.lstm(self.conv(x.transpose(1, 2)).transpose(1, 2).relu(), (hidden, cell))
        return results, hidden, cell


class _Conformer(nn.Module):
    """Attends to the frames before, whose number the application counts, and convolves them."""

    model_type, decode_chunk_len, pad_length = "conformer", _SHIFT, _FRAMES - _SHIFT

    def __init__(self) -> None:
        super().__init__()
        self.input, self.layers = (
            nn.Conv1d(80, _SIZE, 6, stride=2),
            nn.ModuleList(nn.Linear(_SIZE, 3 * _SIZE) for _ in "ab"),
        )
        self.convs = nn.ModuleList(nn.Conv1d(_SIZE, _SIZE, 3, groups=_SIZE) for _ in "ab")

    def forward(self, x: Tensor, attention: Tensor, convolution: Tensor, processed: Tensor) -> tuple[Tensor, ...]:
        y, new = self.input(x.transpose(1, 2)).permute(2, 0, 1).relu(), []
        left = attention.shape[1]
        seen = (torch.arange(left - 1, -1, -1) < processed[:, None]).T  # (left, batch)
        for layer, conv, past, columns in zip(self.layers, self.convs, attention, convolution, strict=True):
            whole, known = torch.cat([past, y]), torch.cat([seen, torch.ones_like(y[:, :, 0], dtype=torch.bool)])
            query, key, value = layer(whole).transpose(0, 1).chunk(3, -1)
            scores = query[:, left:] @ key.transpose(1, 2) / _SIZE**0.5
            mixed = scores.masked_fill(~known.T[:, None], -1e9).softmax(-1) @ value
            padded = torch.cat([columns, mixed.transpose(0, 1)])
            new.append((whole[-left:], padded[-2:]))
            y = y + conv(padded.permute(1, 2, 0)).permute(2, 0, 1)
        return y.transpose(0, 1), *(torch.stack(states) for states in zip(*new, strict=True))


class _Decoder(nn.Module):
    context_size = 2

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.linear = nn.Embedding(_WORDS, _SIZE), nn.Linear(2 * _SIZE, _SIZE)

    def forward(self, y: Tensor) -> Tensor:
        return self.linear(self.embedding(y.clamp(min=0)).flatten(1))  # sherpa-onnx pads with -1


class _Joiner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(_SIZE, _WORDS)

    def forward(self, encoder_out: Tensor, decoder_out: Tensor) -> Tensor:
        return self.linear((encoder_out + decoder_out).tanh())


class _Zipformer(nn.Module):
    """Keeps the states of one layer of a Zipformer, and the columns of the first convolution."""

    model_type, decode_chunk_len = "zipformer2", _SHIFT
    encoder_dims, query_head_dims, value_head_dims, num_heads = (16,), (4,), (3,), (2,)
    num_encoder_layers, cnn_module_kernels, left_context_len = (1,), (5,), (6,)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(80, _SIZE, 6, stride=2)
        self.layers = nn.ModuleList(nn.Linear(_SIZE, size) for size in (8, 12, 6, 6, 128 * 19))
        self.results = nn.ModuleList(nn.Linear(size, _SIZE) for size in (8, 12, 6, 6, 19))

    def forward(self, x: Tensor, states: list[Tensor]) -> Any:
        key, mixed, value, value2, conv, conv2, embed, count = states
        y = self.conv(x.diff(dim=2, prepend=x[:, :, :1]).transpose(1, 2)).transpose(1, 2)
        new = [layer(y) for layer in self.layers]
        old = [key, mixed[0].transpose(0, 1), value, value2]
        states = [torch.cat([past, now.transpose(0, 1)])[-6:] for past, now in zip(old, new, strict=False)]
        embed = torch.cat([embed, new[-1].unflatten(2, (128, 19)).transpose(1, 2)], 2)[:, :, -3:]
        seen = [state.mean(0) for state in states] + [embed.mean((1, 2))]
        y = y + 0.1 * sum(layer(state) for layer, state in zip(self.results, seen, strict=True))[:, None]
        y = y + conv.mean(2)[:, None] - conv2.mean(2)[:, None] + count[:, None, None].sin()
        states[1] = states[1].transpose(0, 1)[None]
        columns = y.transpose(1, 2)[:, :, -2:]
        return y, [*states, columns, columns.tanh(), embed, count + 4]


class _ZipformerCtc(_Zipformer):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Linear(_SIZE, _WORDS)

    def forward(self, x: Tensor, states: list[Tensor]) -> Any:
        y, states = super().forward(x, states)
        return self.words(y).log_softmax(-1), states


class _NemoCtc(nn.Module):
    """Finds tokens that depend on the states only, because NeMo's features are others."""

    model_type, chunk_shift, subsampling_factor = "nemo_ctc", 8, 2

    def forward(self, audio_signal: Tensor, length: Tensor, channel: Tensor, time: Tensor, count: Tensor) -> Any:
        step = 2 * torch.arange(4) + (channel[:, 0, 0, :1] + time[:, 0, 0, :1]).long() + (count + length)[:, None]
        tokens = nn.functional.one_hot(step % _WORDS, _WORDS).float() + 0 * audio_signal[:, :1, ::2].transpose(1, 2)
        return tokens, length // 2, channel + 1, time + 2, count + 4


def _transducer(encoder: nn.Module) -> nn.Module:
    model = nn.Module()
    model.encoder, model.decoder, model.joiner = encoder, _Decoder(), _Joiner()
    return model.eval()


def _random(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.3 if "conv" in name or "lstm" in name else 0.7)
    return model


_ENCODERS = {"lstm": _Lstm, "conformer": _Conformer, "zipformer2": _Zipformer}


def _zeros(kind: str, batch: int = 7) -> dict[str, Any]:
    """Returns the first states."""
    if kind == "lstm":
        return {"hidden": torch.zeros(2, batch, _SIZE), "cell": torch.zeros(2, batch, 24)}
    if kind == "conformer":
        return {"attention": torch.zeros(2, 5, batch, _SIZE), "convolution": torch.zeros(2, 2, batch, _SIZE)}
    count = torch.zeros(batch, dtype=torch.int64)
    if kind == "nemo_ctc":
        return {"channel": torch.zeros(batch, 1, 6, 9), "time": torch.zeros(batch, 1, 9, 4), "count": count}
    layer = [(6, batch, 8), (1, batch, 6, 12), (6, batch, 6), (6, batch, 6), (batch, 16, 2), (batch, 16, 2)]
    return {"states": [*map(torch.zeros, layer), torch.zeros(batch, 128, 3, 19), count]}


def _export(model: nn.Module, kind: str, folder: Path) -> None:
    inputs = {"x": torch.randn(7, _FRAMES, 80), **_zeros(kind)}
    if kind == "conformer":
        inputs["processed"] = torch.arange(1, 8)
    fx_onnx.export_pretrained(model, folder, task="stream", layout="sherpa-onnx", inputs=inputs)


def _metadata(file: Path) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.load(file).metadata_props}


def test_a_transducer_has_the_keys_of_its_type(tmp_path: Path) -> None:
    _export(_transducer(_Conformer()), "conformer", tmp_path / "out")
    sizes = {
        "num_encoder_layers": 2,
        "T": 9,
        "decode_chunk_len": 4,
        "left_context": 5,
        "encoder_dim": 16,
        "pad_length": 5,
    }
    expected = {"model_type": "conformer", "cnn_module_kernel": "3", **{key: str(size) for key, size in sizes.items()}}
    assert expected.items() <= _metadata(tmp_path / "out/encoder.onnx").items()
    assert {"context_size": "2", "vocab_size": "12"}.items() <= _metadata(tmp_path / "out/decoder.onnx").items()
    assert _metadata(tmp_path / "out/joiner.onnx")["joiner_dim"] == "16"


def test_a_type_or_a_value_that_is_missing_is_refused(tmp_path: Path) -> None:
    inputs = {"input": torch.randn(3, 4, 80), "hx": (torch.zeros(1, 3, 5), torch.zeros(1, 3, 5))}
    model = nn.LSTM(80, 5, batch_first=True)
    with pytest.raises(ArgumentError, match="set the attribute model_type of LSTM to one of lstm, conformer"):
        fx_onnx.export_pretrained(model, tmp_path / "out", task="stream", layout="sherpa-onnx", inputs=inputs)
    model.model_type = "lstm"
    with pytest.raises(ArgumentError, match="needs the value of decode_chunk_len: set it as an attribute of LSTM"):
        fx_onnx.export_pretrained(model, tmp_path / "out", task="stream", layout="sherpa-onnx", inputs=inputs)


def _tokens(folder: Path) -> str:
    (folder / "tokens.txt").write_text(
        "".join(f"{name} {index}\n" for index, name in enumerate(["<blk>", *"abcdefghijk"]))
    )
    return str(folder / "tokens.txt")


def _sound() -> Any:
    return np.random.default_rng(0).normal(scale=0.1, size=8000).astype(np.float32)


def _features(samples: Any) -> Tensor:
    """Returns the features of sherpa-onnx, as its stream computes them."""
    knf = pytest.importorskip("kaldi_native_fbank", reason="kaldi-native-fbank computes the features of sherpa-onnx")
    options = knf.FbankOptions()
    options.frame_opts.dither, options.frame_opts.snip_edges = 0, False
    options.frame_opts.samp_freq, options.mel_opts.num_bins, options.mel_opts.high_freq = 16000, 80, -400
    bank = knf.OnlineFbank(options)
    bank.accept_waveform(16000, samples.tolist())
    return torch.from_numpy(np.stack([bank.get_frame(index) for index in range(bank.num_frames_ready)]))


def _decoded(recognizer: Any, samples: Any) -> list[str]:
    stream = recognizer.create_stream()
    stream.accept_waveform(16000, samples)
    while recognizer.is_ready(stream):
        recognizer.decode_stream(stream)
    return list(recognizer.tokens(stream))


@pytest.mark.parametrize("kind", _ENCODERS)
@torch.no_grad()
def test_sherpa_onnx_finds_the_tokens_of_a_transducer(kind: str, tmp_path: Path) -> None:
    sherpa = pytest.importorskip("sherpa_onnx", reason="sherpa-onnx is not installed")
    model: Any = _random(_transducer(_ENCODERS[kind]()))
    _export(model, kind, tmp_path / "out")
    files = {name: str(tmp_path / f"out/{name}.onnx") for name in ("encoder", "decoder", "joiner")}
    recognizer = sherpa.OnlineRecognizer.from_transducer(tokens=_tokens(tmp_path), **files, num_threads=1)
    features, states, tokens = _features(_sound()), list(_zeros(kind, 1).values()), [-1, 0]
    for start in range(0, len(features) - _FRAMES, _SHIFT):
        processed = [torch.tensor([start])] if kind == "conformer" else []
        results, *states = model.encoder(features[None, start : start + _FRAMES], *states, *processed)
        for frame in results[0]:
            logits = model.joiner(frame[None], model.decoder(torch.tensor([tokens[-2:]])))
            tokens += [token] if (token := int(logits.argmax())) else []
    assert len(set(tokens)) > 4
    assert _decoded(recognizer, _sound()) == ["abcdefghijk"[token - 1] for token in tokens[2:]]


def _merged(tokens: list[int]) -> list[str]:
    """Returns the words of tokens of CTC, of which equal ones in a row are one."""
    return ["abcdefghijk"[token - 1] for before, token in itertools.pairwise([0, *tokens]) if token not in (0, before)]


@torch.no_grad()
def test_sherpa_onnx_finds_the_tokens_of_a_zipformer_with_ctc(tmp_path: Path) -> None:
    sherpa = pytest.importorskip("sherpa_onnx", reason="sherpa-onnx is not installed")
    model = _random(_ZipformerCtc()).eval()
    _export(model, "zipformer2", tmp_path / "out")
    file = str(tmp_path / "out/model.onnx")
    recognizer = sherpa.OnlineRecognizer.from_zipformer2_ctc(tokens=_tokens(tmp_path), model=file)
    features, states, tokens = _features(_sound()), _zeros("zipformer2", 1)["states"], list[int]()
    for start in range(0, len(features) - _FRAMES, _SHIFT):
        scores, states = model(features[None, start : start + _FRAMES], states)
        tokens += scores[0].argmax(-1).tolist()
    assert len(set(tokens)) > 4 and _decoded(recognizer, _sound()) == _merged(tokens)


@torch.no_grad()
def test_sherpa_onnx_keeps_the_states_of_a_nemo_model(tmp_path: Path) -> None:
    sherpa = pytest.importorskip("sherpa_onnx", reason="sherpa-onnx is not installed")
    model, chunk = _NemoCtc().eval(), {"audio_signal": torch.randn(7, 80, 8), "length": torch.full((7,), 8)}
    inputs = {**chunk, **_zeros("nemo_ctc")}
    fx_onnx.export_pretrained(model, tmp_path / "out", task="stream", layout="sherpa-onnx", inputs=inputs)
    recognizer = sherpa.OnlineRecognizer.from_nemo_ctc(tokens=_tokens(tmp_path), model=str(tmp_path / "out/model.onnx"))
    states, tokens = list(_zeros("nemo_ctc", 1).values()), list[int]()
    for _ in range(0, len(_features(_sound())) - 8, 8):
        scores, _, *states = model(torch.zeros(1, 80, 8), torch.tensor([8]), *states)
        tokens += scores[0].argmax(-1).tolist()
    assert len(set(tokens)) > 4 and _decoded(recognizer, _sound()) == _merged(tokens)
