"""Decompositions of short-time Fourier transforms against torch."""

from typing import Any

import pytest
import torch

import fx_onnx.torch_internals.custom_ops  # noqa: F401  defines fx_onnx::stft
from fx_onnx.decompositions.fourier import istft, stft, stft_center
from tests.compare import assert_close

WINDOW = torch.hann_window(16, dtype=torch.float64)
SIGNAL = torch.randn(2, 100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("options", [{}, {"normalized": True}, {"onesided": False}, {"win_length": 10}], ids=str)
def test_stft(options: dict[str, Any]) -> None:
    window = WINDOW[: options.get("win_length", 16)]
    want = torch.ops.aten.stft.center(SIGNAL, 16, 4, window=window, return_complex=True, **options)
    assert_close(stft_center(SIGNAL, 16, 4, window=window, return_complex=True, **options), want)


def test_stft_of_other_signals() -> None:
    for signal in (SIGNAL, SIGNAL[0], SIGNAL + 1j * SIGNAL.flip(0)):
        onesided = not signal.is_complex()
        want = torch.ops.aten.stft.default(signal, 16, 4, None, WINDOW, onesided=onesided, return_complex=True)
        assert_close(stft(signal, 16, 4, None, WINDOW, onesided=onesided, return_complex=True), want)
    want = torch.ops.aten.stft.default(SIGNAL, 16, return_complex=False)
    assert_close(stft(SIGNAL, 16, return_complex=False), want)


@pytest.mark.parametrize(
    "options", [{}, {"normalized": True}, {"length": 90}, {"length": 120}, {"win_length": 12}], ids=str
)
def test_istft(options: dict[str, Any]) -> None:
    window = torch.hann_window(options.get("win_length", 16), dtype=torch.float64)
    shared = {k: v for k, v in options.items() if k != "length"}
    spectrum = torch.stft(SIGNAL, 16, 4, window=window, return_complex=True, **shared)
    for each in (spectrum, spectrum[0]):
        assert_close(istft(each, 16, 4, window=window, **options), torch.istft(each, 16, 4, window=window, **options))


def test_istft_of_two_sided_spectra() -> None:
    window = torch.ones(16, dtype=torch.float64)
    spectrum = torch.stft(SIGNAL, 16, 4, window=window, onesided=False, return_complex=True)
    assert_close(istft(spectrum, 16, 4, window=window, onesided=False), SIGNAL)
    back = torch.istft(spectrum, 16, 4, window=window, onesided=False, return_complex=True)
    assert_close(istft(spectrum, 16, 4, window=window, onesided=False, return_complex=True), back)
