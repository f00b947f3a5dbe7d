"""Decompositions of short-time Fourier transforms and their inverse into windows and Fourier transforms."""

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import aten, decomposes


def _window(window: Tensor | None, win_length: int | None, n_fft: int, like: Tensor) -> Tensor | None:
    """Returns the window, padded with zeros on both sides to ``n_fft`` numbers; None if it is all ones."""
    length = n_fft if win_length is None else win_length
    if window is None:
        if length == n_fft:
            return None
        window = torch.ones(length, dtype=like.real.dtype if like.is_complex() else like.dtype, device=like.device)
    left = (n_fft - length) // 2
    return window if length == n_fft else torch.nn.functional.pad(window, (left, n_fft - length - left))


@decomposes(aten.stft.center)
def stft_center(
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """Returns [..., frequency, frame]: the transforms of the windows of a signal that is first padded at both ends."""
    if center:
        extended = self if self.dim() > 1 else self.unsqueeze(0)
        extended = torch.nn.functional.pad(extended, (n_fft // 2, n_fft // 2), mode=pad_mode)
        self = extended if self.dim() > 1 else extended.squeeze(0)
    return stft(self, n_fft, hop_length, win_length, window, normalized, onesided, return_complex, align_to_window)


@decomposes(aten.stft.default)
def stft(
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """Returns [..., frequency, frame]: the transforms of the windows of a signal."""
    if align_to_window:
        raise NotImplementedError("stft with align_to_window is not supported. Call it without align_to_window.")
    hop = n_fft // 4 if hop_length is None else hop_length
    weights = _window(window, win_length, n_fft, self)
    if not self.is_complex() and (weights is None or not weights.is_complex()):
        signal = self if self.dim() == 2 else self.unsqueeze(0)
        parts = torch.ops.fx_onnx.stft(signal, weights, n_fft, hop, onesided is not False)
        real, imag = parts if self.dim() == 2 else [part.squeeze(0) for part in parts]
        if normalized:
            real, imag = real * n_fft**-0.5, imag * n_fft**-0.5
        return torch.complex(real, imag) if return_complex else torch.stack((real, imag), -1)
    frames = self.unfold(-1, n_fft, hop)  # the result of a complex signal or window is complex by default
    frames = frames if weights is None else frames * weights
    spectrum = torch.fft.fft(frames, norm="ortho" if normalized else "backward").transpose(-1, -2)
    return torch.view_as_real(spectrum) if return_complex is False else spectrum


def _overlap_add(frames: Tensor, hop: int, length: int) -> Tensor:
    """Returns [..., length]: the sum of the frames [..., frame, n], each ``hop`` elements after the one before."""
    columns = frames.transpose(-1, -2)
    columns = columns if columns.dim() == 3 else columns.unsqueeze(0)
    image = torch.nn.functional.fold(columns, (1, length), (1, frames.size(-1)), stride=(1, hop))
    return image.reshape(*frames.shape[:-2], length)


@decomposes(aten.istft.default)
def istft(
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """Returns the signal whose stft is self.

    It is the overlap-add of the inverse transforms times the window, divided by the overlap-add of the squared windows.
    """
    hop = n_fft // 4 if hop_length is None else hop_length
    norm = "ortho" if normalized else "backward"
    spectrum = self.transpose(-1, -2)
    count = spectrum.size(-2)
    if return_complex:
        frames = torch.fft.ifft(spectrum, norm=norm)
    else:
        frames = torch.fft.irfft(spectrum[..., : n_fft // 2 + 1], n=n_fft, norm=norm)
    whole = (count - 1) * hop + n_fft
    weights = _window(window, win_length, n_fft, self)
    if weights is None:
        weights = torch.ones(n_fft, dtype=self.real.dtype if self.is_complex() else self.dtype, device=self.device)
    frames = frames * weights
    if frames.is_complex():
        signal = torch.complex(_overlap_add(frames.real, hop, whole), _overlap_add(frames.imag, hop, whole))
    else:
        signal = _overlap_add(frames, hop, whole)
    squares = (weights * weights).expand(1, count, n_fft)
    envelope = _overlap_add(squares, hop, whole).reshape(whole)
    start = n_fft // 2 if center else 0
    kept = whole - 2 * start if length is None else length
    signal, envelope = signal[..., start:], envelope[start:]
    if length is None:
        return signal.narrow(-1, 0, kept) / envelope.narrow(0, 0, kept)
    available = whole - start
    if isinstance(available, int) and available >= length:
        return signal.narrow(-1, 0, length) / envelope.narrow(0, 0, length)
    divided = signal / torch.where(envelope == 0, 1.0, envelope)
    padding = torch.zeros((*divided.shape[:-1], length), dtype=divided.dtype, device=divided.device)
    return torch.cat((divided, padding), -1).narrow(-1, 0, length)
