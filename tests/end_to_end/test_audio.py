"""Audio models in plain torch, for signals of any length: spectrograms and their inverse, mel filters, resampling."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fx_onnx
from tests.compare import assert_close

RATE = 16000
ANY_LENGTH = {0: "batch", 1: "time"}


def wave(batch: int, length: int, seed: int = 0) -> Tensor:
    """Returns signals of a few sines and noise."""
    time = torch.arange(length) / RATE
    pitches = torch.tensor([220.0, 1000.0, 3300.0])[:, None] * (1 + torch.arange(batch) / 7)[:, None, None]
    noise = torch.randn(batch, length, generator=torch.Generator().manual_seed(seed))
    return torch.sin(2 * math.pi * pitches * time).sum(1) / 3 + 0.05 * noise


def mel_filters(bins: int, mels: int) -> Tensor:
    """Returns (bins, mels): triangular filters, evenly spaced on the mel scale."""

    def mel(hertz: float) -> float:
        return 2595.0 * math.log10(1.0 + hertz / 700.0)

    edges = 700.0 * (10.0 ** (torch.linspace(mel(0.0), mel(RATE / 2), mels + 2) / 2595.0) - 1.0)
    slopes = edges[None, :] - torch.linspace(0, RATE / 2, bins)[:, None]
    steps = edges.diff()
    return torch.minimum(-slopes[:, :-2] / steps[:-1], slopes[:, 2:] / steps[1:]).clamp(min=0)


def cosine_transform(coefficients: int, mels: int) -> Tensor:
    """Returns (mels, coefficients): the orthonormal discrete cosine transform of type II."""
    angles = math.pi / mels * (torch.arange(mels)[:, None] + 0.5) * torch.arange(coefficients)
    scale = torch.full((coefficients,), math.sqrt(2.0 / mels))
    scale[0] = math.sqrt(1.0 / mels)
    return angles.cos() * scale


def decibels(power: Tensor, top: float | None = None) -> Tensor:
    """Returns 10 log10, clamped to at most ``top`` below the maximum of each signal."""
    db = 10.0 * power.clamp(min=1e-10).log10()
    return db if top is None else torch.maximum(db, db.amax(dim=(-2, -1), keepdim=True) - top)


class Spectrogram(nn.Module):
    """|STFT|^power, or the complex STFT if power is None."""

    def __init__(
        self, n_fft: int = 64, hop: int = 16, window: int | None = None, power: float | None = 2.0, **options: object
    ) -> None:
        super().__init__()
        self.n_fft, self.hop, self.power, self.options = n_fft, hop, power, options
        self.register_buffer("window", torch.hann_window(window or n_fft))

    def forward(self, waveform: Tensor) -> Tensor:
        spectrum = torch.stft(
            waveform, self.n_fft, self.hop, len(self.window), self.window, return_complex=True, **self.options
        )
        return spectrum if self.power is None else spectrum.abs().pow(self.power)


class MelSpectrogram(nn.Module):
    def __init__(self, mels: int = 20, top: float | None = 80.0) -> None:
        super().__init__()
        self.spectrogram, self.top = Spectrogram(), top
        self.register_buffer("filters", mel_filters(33, mels))

    def forward(self, waveform: Tensor) -> Tensor:
        power = self.spectrogram(waveform)
        return decibels(torch.matmul(power.transpose(-1, -2), self.filters).transpose(-1, -2), self.top)


class MFCC(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mel = MelSpectrogram()
        self.register_buffer("transform", cosine_transform(13, 20))

    def forward(self, waveform: Tensor) -> Tensor:
        return torch.matmul(self.mel(waveform).transpose(-1, -2), self.transform).transpose(-1, -2)


class FrequencyFilter(nn.Module):
    """A filter in the frequency domain: an STFT, a gain for each bin, and an inverse STFT of any length."""

    def __init__(self, longer: int = 0) -> None:
        super().__init__()
        self.longer = longer
        self.register_buffer("window", torch.hann_window(64))
        self.register_buffer("gain", torch.linspace(1.0, 0.2, 33)[:, None])

    def forward(self, waveform: Tensor) -> Tensor:
        spectrum = torch.stft(waveform, 64, 16, window=self.window, return_complex=True)
        return torch.istft(spectrum * self.gain, 64, 16, window=self.window, length=waveform.shape[-1] + self.longer)


class GriffinLim(nn.Module):
    """The waveform of a magnitude spectrogram; repeated transforms in both directions estimate the phases."""

    def __init__(self, rounds: int = 3, momentum: float = 0.99) -> None:
        super().__init__()
        self.rounds, self.momentum = rounds, momentum / (1 + momentum)
        self.register_buffer("window", torch.hann_window(64))

    def forward(self, magnitude: Tensor) -> Tensor:
        angles = torch.polar(torch.ones_like(magnitude), magnitude)  # the first phases are arbitrary
        before = torch.zeros_like(angles)
        for _ in range(self.rounds):
            inverse = torch.istft(magnitude * angles, 64, 16, window=self.window)
            rebuilt = torch.stft(inverse, 64, 16, window=self.window, return_complex=True)
            angles = rebuilt - before * self.momentum
            angles = angles / (angles.abs() + 1e-16)
            before = rebuilt
        return torch.istft(magnitude * angles, 64, 16, window=self.window)


class Resample(nn.Module):
    """Conversion of the sampling rate by a windowed sinc: a convolution with ``new`` phases for ``old`` samples."""

    def __init__(self, old: int = 3, new: int = 2, zeros: int = 6, rolloff: float = 0.99) -> None:
        super().__init__()
        self.old, self.new = old, new
        base = min(old, new) * rolloff
        self.width = math.ceil(zeros * old / base)
        index = torch.arange(-self.width, self.width + old, dtype=torch.float64)[None, None] / old
        time = (torch.arange(0, -new, -1, dtype=torch.float64)[:, None, None] / new + index) * base
        time = time.clamp(-zeros, zeros)
        window = (time * math.pi / zeros / 2).cos() ** 2
        self.register_buffer("kernel", (torch.sinc(time) * window * base / old).float())

    def forward(self, waveform: Tensor) -> Tensor:
        length = waveform.shape[-1]
        padded = F.pad(waveform, (self.width, self.width + self.old))
        phases = F.conv1d(padded[:, None], self.kernel, stride=self.old)
        target = (self.new * length + self.old - 1) // self.old
        return phases.transpose(1, 2).reshape(waveform.shape[0], -1)[:, :target]


class Deltas(nn.Module):
    """The change of features over time: a regression over neighbouring frames, as a convolution with groups."""

    def forward(self, features: Tensor) -> Tensor:
        kernel = torch.arange(-2.0, 3.0).repeat(features.shape[1], 1, 1)
        padded = F.pad(features, (2, 2), mode="replicate")
        return F.conv1d(padded, kernel, groups=features.shape[1]) / 10.0


class WhisperFeatures(nn.Module):
    """Whisper's features: the log-mel spectrogram without the last frame, clamped below the maximum, and scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(80))
        self.register_buffer("filters", mel_filters(41, 16).T)

    def forward(self, waveform: Tensor) -> Tensor:
        power = torch.stft(waveform, 80, 32, window=self.window, return_complex=True)[..., :-1].abs() ** 2
        log = (self.filters @ power).clamp(min=1e-10).log10()
        floor = log.amax(dim=(1, 2), keepdim=True) - 8.0
        return (torch.maximum(log, floor) + 4.0) / 4.0


def check(module: nn.Module, *examples: Tensor, axes: dict[int, str]) -> None:
    """Exports the module with the first example and compares it with eager for all examples.

    A complex result is compared as pairs of real numbers.
    """
    module = module.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error", fx_onnx.OnnxExporterWarning)  # a dim that becomes static gives a warning
        warnings.filterwarnings("ignore", r".* correct only where sequence <= 64")  # the table of positions has 64 rows
        program = fx_onnx.export(module, (examples[0],), dynamic_shapes=(axes,))
    for example in examples:
        with torch.no_grad():
            want = module(example)
        assert_close(program(example), torch.view_as_real(want) if want.is_complex() else want, 2e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"power": 1.0},
        {"power": None},
        {"window": 48, "normalized": True},
        {"center": False},
        {"pad_mode": "constant"},
        {"onesided": False, "hop": 20},
    ],
    ids=str,
)
def test_spectrogram(options: dict[str, object]) -> None:
    check(Spectrogram(**options), wave(2, 400), wave(3, 611), axes=ANY_LENGTH)


@pytest.mark.parametrize(
    "module",
    [MelSpectrogram(), MelSpectrogram(top=None), MFCC(), WhisperFeatures()],
    ids=["mel", "mel_all", "mfcc", "whisper"],
)
def test_features(module: nn.Module) -> None:
    check(module, wave(2, 400), wave(3, 611), axes=ANY_LENGTH)


@pytest.mark.parametrize("longer", [0, 20, 100, -50])
def test_frequency_filter(longer: int) -> None:
    """Tests lengths that end within the last frame, and lengths beyond it, which are filled with zeros."""
    check(FrequencyFilter(longer), wave(2, 400), wave(1, 640), axes=ANY_LENGTH)


def test_griffin_lim() -> None:
    first, second = (Spectrogram(power=1.0)(wave(*sizes)) for sizes in ((2, 400), (1, 640)))
    check(GriffinLim(), first, second, axes={0: "batch", 2: "frames"})


@pytest.mark.parametrize("rates", [(3, 2), (2, 3), (441, 160), (1, 4)])
def test_resampling(rates: Sequence[int]) -> None:
    check(Resample(*rates), wave(2, 900), wave(3, 1234), axes=ANY_LENGTH)


def test_deltas() -> None:
    check(Deltas(), wave(10, 50).reshape(2, 5, 50), wave(15, 70).reshape(3, 5, 70), axes={0: "batch", 2: "frames"})


# ---------------------------------------------------------------- rotary embeddings in complex numbers


class Rotary(nn.Module):
    """Rotary embeddings as in Llama: pairs of numbers as complex numbers, rotated by an angle for each position."""

    def __init__(self, polar: bool) -> None:
        super().__init__()
        self.polar = polar
        self.register_buffer("frequencies", 1.0 / 10000.0 ** (torch.arange(0, 16, 2).float() / 16))

    def forward(self, query: Tensor) -> Tensor:
        angles = torch.outer(torch.arange(query.shape[1], device=query.device).float(), self.frequencies)
        turn = torch.polar(torch.ones_like(angles), angles) if self.polar else torch.exp(1j * angles)
        pairs = torch.view_as_complex(query.float().reshape(*query.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turn[None, :, None]).flatten(3).type_as(query)


class RotaryTable(nn.Module):
    """Rotary embeddings from a table of complex factors, of which as many rows are read as there are positions."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(64.0), 1.0 / 10000.0 ** (torch.arange(0, 16, 2).float() / 16))
        self.register_buffer("table", torch.polar(torch.ones_like(angles), angles))

    def forward(self, query: Tensor) -> Tensor:
        pairs = torch.view_as_complex(query.unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * self.table[: query.shape[1]].unsqueeze(1)).flatten(-2)


@pytest.mark.parametrize("module", [Rotary(True), Rotary(False), RotaryTable()], ids=["polar", "exp", "table"])
def test_rotary(module: nn.Module) -> None:
    check(module, torch.randn(2, 7, 3, 16), torch.randn(1, 12, 3, 16), axes={0: "batch", 1: "sequence"})
