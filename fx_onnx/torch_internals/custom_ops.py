"""Custom torch operators for computations that ATen expresses only with complex tensors, in place, or without shapes.

The Fourier transforms work on pairs: real tensors whose last axis holds the real and the imaginary part. The
recurrences are loops over tokens, which ATen has only unrolled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("fx_onnx", "DEF")  # lives as long as its operators


def _complex(input: Tensor) -> Tensor:
    return input[..., 0] if input.size(-1) == 1 else torch.view_as_complex(input.contiguous())


def _dft(input: Tensor, axis: int, inverse: bool = False, onesided: bool = False) -> Tensor:
    """Computes the DFT Σ_n input[n] exp(-2πi·kn/N) along ``axis``, or its inverse, as pairs.

    Args:
        input: real numbers with a last axis of size 1, or pairs with a last axis of size 2.
        axis: not negative, and not the last axis.
        inverse: computes Σ_n input[n] exp(+2πi·kn/N) / N.
        onesided: returns k ≤ N/2 only; the input must be real.
    """
    transform = torch.fft.rfft if onesided else torch.fft.ifft if inverse else torch.fft.fft
    result: Tensor = torch.view_as_real(transform(_complex(input), dim=axis).resolve_conj()).contiguous()
    return result


def _irdft(input: Tensor, axis: int, length: int) -> Tensor:
    """Computes the inverse of a one-sided DFT: ``length`` real numbers along ``axis``, without the axis of pairs."""
    result: Tensor = torch.fft.irfft(_complex(input), n=length, dim=axis).contiguous()
    return result


def _dft_sizes(input: Tensor, axis: int, inverse: bool = False, onesided: bool = False) -> Tensor:
    sizes = [*input.shape[:-1], 2]
    if onesided:
        sizes[axis] = sizes[axis] // 2 + 1
    return input.new_empty(sizes)


def _irdft_sizes(input: Tensor, axis: int, length: int) -> Tensor:
    sizes = list(input.shape[:-1])
    sizes[axis] = length
    return input.new_empty(sizes)


def _stft(input: Tensor, window: Tensor | None, n_fft: int, hop: int, onesided: bool) -> tuple[Tensor, ...]:
    """Computes the real and the imaginary parts (batch, frequency, frame) of the transforms of the windows of a signal.

    Args:
        input: real numbers (batch, length).
        window: (n_fft,); None is a window of ones.
        n_fft: the length of the windows.
        hop: the distance between the starts of two windows.
        onesided: returns the frequencies up to n_fft / 2 only.
    """
    frames = input.unfold(-1, n_fft, hop)
    frames = frames if window is None else frames * window
    spectrum = (torch.fft.rfft(frames) if onesided else torch.fft.fft(frames)).transpose(1, 2)
    return spectrum.real.contiguous(), spectrum.imag.contiguous()


def _stft_sizes(input: Tensor, window: Tensor | None, n_fft: int, hop: int, onesided: bool) -> tuple[Tensor, ...]:
    sizes = [input.size(0), n_fft // 2 + 1 if onesided else n_fft, (input.size(1) - n_fft) // hop + 1]
    return input.new_empty(sizes), input.new_empty(sizes)


def _fill_diagonal(self: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    """Returns a copy of ``self`` after ``fill_diagonal_``."""
    return self.clone().fill_diagonal_(fill_value, wrap)


def _fill_diagonal_sizes(self: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    return torch.empty_like(self)


def _lstsq(self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str) -> tuple[Tensor, ...]:
    """Returns the results of ``torch.linalg.lstsq``."""
    return tuple(torch.linalg.lstsq(self, b, rcond, driver=driver))


def _lstsq_sizes(self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str) -> tuple[Tensor, ...]:
    """Returns tensors of the right shapes; the residuals are those of a matrix of full rank."""
    (*batch, m, n), real = self.shape, self.dtype.to_real()
    vector = b.dim() == self.dim() - 1
    batch = list(torch.broadcast_shapes(batch, b.shape[:-1] if vector else b.shape[:-2]))
    columns = [] if vector else [b.size(-1)]
    solution, none = b.new_empty([*batch, n, *columns]), self.new_empty([0], dtype=real)
    residuals = self.new_empty([*batch, *(columns or [1])], dtype=real) if driver != "gelsy" and m > n else none
    rank = self.new_empty([0] if driver == "gels" else self.shape[:-2], dtype=torch.int64)
    has_values = driver in ("gelsd", "gelss")
    values = self.new_empty([*self.shape[:-2], torch.sym_min(m, n)], dtype=real) if has_values else none.clone()
    return solution, residuals, rank, values


def _linear_attention(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor | None, state: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Returns the results of a linear attention (batch, token, head, dv), and the last state (batch, head, dk, dv).

    For each token, the state becomes exp(decay) * state + k v^T, and the result is scale * q^T state. With ``beta``,
    the delta rule replaces v by beta * (v - k^T exp(decay) * state).

    Args:
        query: (batch, token, group, dk); a group of heads shares its queries and its keys.
        key: (batch, token, group, dk).
        value: (batch, token, head, dv).
        decay: the logarithm of the decay for each head (batch, token, head), or for each of its rows, with dk.
        beta: (batch, token, head), or None.
        state: the first state.
        scale: the factor of the results.
    """
    query, key = (projected.repeat_interleave(value.size(2) // projected.size(2), 2) for projected in (query, key))
    factors = (decay if decay.dim() == 4 else decay.unsqueeze(-1)).exp().unsqueeze(-1)
    results, state = [value[:, :0]], state.clone()
    for t in range(value.size(1)):
        state = state * factors[:, t]
        new = value[:, t]
        if beta is not None:
            new = (new - (key[:, t].unsqueeze(-1) * state).sum(-2)) * beta[:, t].unsqueeze(-1)
        state = state + key[:, t].unsqueeze(-1) * new.unsqueeze(-2)
        results.append((query[:, t].unsqueeze(-1) * state).sum(-2).unsqueeze(1) * scale)
    return torch.cat(results, 1), state


def _linear_attention_sizes(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor | None, state: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    return value.new_empty(value.shape), state.new_empty(state.shape)


def _selective_scan(
    input: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Returns the results of a selective scan (batch, channel, token), and the last state (batch, channel, n).

    For each token, the state becomes exp(dt * A) * state + dt * input * B, and the result is C^T state.

    Args:
        input: (batch, channel, token).
        dt: (batch, channel, token).
        A: (channel, n).
        B: (batch, n, token).
        C: (batch, n, token).
        state: the first state.
    """
    results, state = [input[..., :0]], state.clone()
    for t in range(input.size(-1)):
        step = dt[..., t].unsqueeze(-1)
        state = torch.exp(step * A) * state + step * B[:, None, :, t] * input[..., t].unsqueeze(-1)
        results.append(state @ C[..., t].unsqueeze(-1))
    return torch.cat(results, -1), state


def _selective_scan_sizes(
    input: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return input.new_empty(input.shape), state.new_empty(state.shape)


def _causal_conv1d(input: Tensor, weight: Tensor, bias: Tensor | None, past: Tensor | None) -> Tensor:
    """Returns the convolutions (batch, channel, token) of each channel with its weights.

    Args:
        input: (batch, channel, token).
        weight: (channel, k).
        bias: (channel,), or None.
        past: the k - 1 tokens before, or None for zeros.
    """
    before = weight.size(1) - 1
    joined = torch.nn.functional.pad(input, (before, 0)) if past is None else torch.cat([past, input], -1)
    return torch.nn.functional.conv1d(joined, weight.unsqueeze(1), bias, groups=weight.size(0))


def _causal_conv1d_sizes(input: Tensor, weight: Tensor, bias: Tensor | None, past: Tensor | None) -> Tensor:
    return input.new_empty(input.shape)


def _rwkv(
    decay: Tensor, time_first: Tensor, key: Tensor, value: Tensor, numerator: Tensor, denominator: Tensor,
    largest: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns the results of the attention of RWKV 4 (batch, token, channel), and the last three states.

    For each token, the result is (a + e^(u+k) v) / (b + e^(u+k)), where a and b sum e^k v and e^k of the tokens before,
    which decay by e^-e^w.

    Args:
        decay: w (channel,).
        time_first: u (channel,).
        key: (batch, token, channel).
        value: (batch, token, channel).
        numerator: a / e^m (batch, channel).
        denominator: b / e^m (batch, channel).
        largest: m, the largest exponent so far (batch, channel).
    """
    results, a, b, m = [value[:, :0]], numerator.clone(), denominator.clone(), largest.clone()
    for t in range(key.size(1)):
        k, v = key[:, t], value[:, t]
        first = torch.maximum(m, k + time_first)
        old, new = torch.exp(m - first), torch.exp(k + time_first - first)
        results.append(((old * a + new * v) / (old * b + new)).unsqueeze(1))
        decayed = m - decay
        m = torch.maximum(decayed, k)
        old, new = torch.exp(decayed - m), torch.exp(k - m)
        a, b = old * a + new * v, old * b + new
    return torch.cat(results, 1), a, b, m


def _rwkv_sizes(decay: Tensor, time_first: Tensor, key: Tensor, value: Tensor, *state: Tensor) -> Any:
    return value.new_empty(value.shape), *(part.new_empty(part.shape) for part in state)


_SCHEMAS = (
    ("dft(Tensor input, int axis, bool inverse=False, bool onesided=False) -> Tensor", _dft, _dft_sizes),
    ("irdft(Tensor input, int axis, int length) -> Tensor", _irdft, _irdft_sizes),
    (
        "stft(Tensor input, Tensor? window, int n_fft, int hop, bool onesided) -> (Tensor, Tensor)",
        _stft,
        _stft_sizes,
    ),
    (
        "fill_diagonal(Tensor self, Scalar fill_value, bool wrap=False) -> Tensor",
        _fill_diagonal,
        _fill_diagonal_sizes,
    ),
    (
        "lstsq(Tensor self, Tensor b, float? rcond=None, *, str driver) -> (Tensor, Tensor, Tensor, Tensor)",
        _lstsq,
        _lstsq_sizes,
    ),
    (
        "linear_attention(Tensor query, Tensor key, Tensor value, Tensor decay, Tensor? beta, Tensor state, "
        "float scale) -> (Tensor, Tensor)",
        _linear_attention,
        _linear_attention_sizes,
    ),
    (
        "selective_scan(Tensor input, Tensor dt, Tensor A, Tensor B, Tensor C, Tensor state) -> (Tensor, Tensor)",
        _selective_scan,
        _selective_scan_sizes,
    ),
    (
        "causal_conv1d(Tensor input, Tensor weight, Tensor? bias, Tensor? past) -> Tensor",
        _causal_conv1d,
        _causal_conv1d_sizes,
    ),
    (
        "rwkv(Tensor decay, Tensor time_first, Tensor key, Tensor value, Tensor numerator, Tensor denominator, "
        "Tensor largest) -> (Tensor, Tensor, Tensor, Tensor)",
        _rwkv,
        _rwkv_sizes,
    ),
)


def define_operator(schema: str, run: Callable[..., Any], infer_sizes: Callable[..., Any] | None) -> None:
    """Defines an operator of the namespace ``fx_onnx``.

    Args:
        schema: its schema, such as ``name(Tensor input) -> Tensor``.
        run: computes its results from real tensors.
        infer_sizes: returns empty results of the right sizes and dtypes; None if ``register_fake`` follows, because a
            size depends on data. ``register_fake`` searches all modules for the source of its caller, which takes long.
    """
    name = _LIBRARY.define(schema)
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    if infer_sizes is not None:
        _LIBRARY.impl(name, infer_sizes, "Meta")


for _operator in _SCHEMAS:
    define_operator(*_operator)
