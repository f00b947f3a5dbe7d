"""Fourier transforms of pairs of real numbers: DFT nodes, or products with the transform's matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from onnx_ir import DataType, Value

import fx_onnx.torch_internals.custom_ops  # noqa: F401  defines what is translated here
from fx_onnx.extension_points.translation_table import translates
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.translation.emitter import Emitter

MAX_MATRIX_LENGTH = 1024
"""A longer axis uses a DFT node, because its matrix would be large and slower than a fast transform."""


MAX_BASIS_LENGTH = 2048
"""Longer windows use an STFT node, because the basis of a Conv would be larger than 16 MB."""


def _is_power_of_two(length: Size) -> bool:
    return isinstance(length, int) and length > 0 and length & (length - 1) == 0


def _is_faster_as_matmul(length: Size) -> bool:
    """Returns whether a matrix product is faster and more exact than DFT.

    For a length that is not a power of two, ONNX Runtime's DFT takes 20 times as long and loses three digits.
    """
    return isinstance(length, int) and not _is_power_of_two(length) and length <= MAX_MATRIX_LENGTH


def _cosines_and_sines(rows: int, columns: int, length: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Returns cos and sin of 2π * n * k / length for all n and k.

    n * k is reduced modulo length in exact integers, and the zeros at quarter turns are exact: cos(π / 2) in float64 is
    6e-17, which would make a sum that is 0 in PyTorch a tiny number.
    """
    steps = np.outer(np.arange(rows), np.arange(columns)) % max(length, 1)
    angles = steps.astype(np.float64) * (2 * np.pi / max(length, 1))
    cosine, sine = np.cos(angles), np.sin(angles)
    return np.where(abs(cosine) < 1e-14, 0.0, cosine), np.where(abs(sine) < 1e-14, 0.0, sine)


def _matrix(length: int, parts: int, inverse: bool, onesided: bool) -> npt.NDArray[np.float64]:
    """Returns the [length * parts, count * 2] matrix of the transform of numbers (1 part) or pairs (2 parts)."""
    count = length // 2 + 1 if onesided else length
    cosine, sine = _cosines_and_sines(length, count, length)
    sine = sine if inverse else -sine
    table = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], 1)[:, :parts]
    return table.reshape(length * parts, count * 2) / (length if inverse else 1)


def _real_matrix(count: int, length: int) -> npt.NDArray[np.float64]:
    """Returns the [count * 2, length] matrix of the inverse transform of half a spectrum of ``count`` pairs."""
    used = min(count, length // 2 + 1)
    cosine, sine = _cosines_and_sines(used, length, length)
    weight = np.full((used, 1), 2.0)
    weight[0] = 1
    if length % 2 == 0 and used == length // 2 + 1:
        weight[-1] = 1
    table = np.zeros((count, 2, length))
    table[:used] = np.stack([cosine * weight, -sine * weight], 1) / length
    return table.reshape(count * 2, length)


def _product(op: Emitter, x: Value, axis: int, matrix: npt.NDArray[np.float64], sizes: Sequence[Size]) -> Value:
    """Merges ``axis`` with the last axis, which holds the parts of the numbers, and multiplies by ``matrix``.

    ``sizes`` are the sizes of the result. If there are as many as ``x`` has axes, the result has a last axis of 2 too.
    """
    rank, pairs = op.rank(x), len(sizes) == op.rank(x)
    others = [i for i in range(rank - 1) if i != axis]
    x = op.transpose(x, [*others, axis, rank - 1])
    lead = op.sizes(x)[:-2]
    x = op.reshape(x, [*lead, matrix.shape[0]])
    x = op.MatMul(x, op.constant(matrix, op.out_dtype))
    inner = [sizes[axis], 2] if pairs else [sizes[axis]]
    x = op.with_sizes(x, [*lead, matrix.shape[1]])
    x = op.reshape(x, [*lead, *inner])
    order = [*others, axis]
    return op.transpose(x, [order.index(i) for i in range(rank - 1)] + ([rank - 1] if pairs else []))


def _transform(op: Emitter, input: Value, axis: int, inverse: bool, onesided: bool, axis_is_input: bool) -> Value:
    """Emits a MatMul or a DFT along ``axis``."""
    length = op.sizes(input)[axis]
    if isinstance(length, int) and _is_faster_as_matmul(length):
        parts = op.sizes(input)[-1]
        return _product(op, input, axis, _matrix(length, int(parts), inverse, onesided), op.out_sizes)
    # ONNX Runtime's float32 DFT keeps only three digits at length 1000, because 1000 is not a power of two.
    wide = op.cast(input, DataType.DOUBLE) if not _is_power_of_two(length) else input
    flags = {"inverse": 1 if inverse else None, "onesided": 1 if onesided else None}
    result = op.DFT(wide, None, axis, **flags) if axis_is_input else op.DFT(wide, axis=axis, **flags)
    return op.cast(result, op.out_dtype)


@translates(torch.ops.fx_onnx.dft.default)
def fx_onnx_dft(op: Emitter, input: Value, axis: int, inverse: bool = False, onesided: bool = False) -> Value:
    """Emits DFT, whose axis is an attribute before opset 20: Σ_n input[n] exp(∓2πi * k * n / N)."""
    return _transform(op, input, axis, inverse, onesided, axis_is_input=False)


@translates(torch.ops.fx_onnx.dft.default, since=20)
def fx_onnx_dft_20(op: Emitter, input: Value, axis: int, inverse: bool = False, onesided: bool = False) -> Value:
    """Emits DFT, whose axis is an input from opset 20: Σ_n input[n] exp(∓2πi * k * n / N)."""
    return _transform(op, input, axis, inverse, onesided, axis_is_input=True)


@translates(torch.ops.fx_onnx.irdft.default)
def fx_onnx_irdft(op: Emitter, input: Value, axis: int, length: int) -> Value:
    """Emits MatMul: the real numbers whose half spectrum is ``input``."""
    count = op.sizes(input)[axis]
    if not isinstance(count, int):
        raise NotImplementedError(
            "The inverse transform of half a spectrum requires a static length. Make this dim static."
        )
    return _product(op, input, axis, _real_matrix(count, length), op.out_sizes)


@translates(torch.ops.fx_onnx.stft.default)
def fx_onnx_stft(
    op: Emitter, input: Value, window: Value | None, n_fft: int, hop: int, onesided: bool
) -> Sequence[Value]:
    """Emits a Conv of the signal with the waves of all frequencies times the window, and a Split of its two parts.

    Long windows, and float64, for which ONNX Runtime has no Conv, use STFT.

    Source: X[k, m] = Σ_n input[m * hop + n] * window[n] * exp(-2πi * k * n / n_fft).
    """
    count = n_fft // 2 + 1 if onesided else n_fft
    if n_fft > MAX_BASIS_LENGTH or op.out_dtype == DataType.DOUBLE:
        return _long_stft(op, input, window, n_fft, hop, onesided)
    cosine, sine = _cosines_and_sines(n_fft, count, n_fft)
    basis = op.constant(np.concatenate([cosine.T, -sine.T])[:, None], op.out_dtype)
    basis = basis if window is None else op.Mul(basis, op.cast(window, op.out_dtype))
    waves = op.Conv(op.unsqueeze(input, 1), basis, strides=[hop])
    return op.Split(waves, axis=1, num_outputs=2, outputs=2)


def _long_stft(
    op: Emitter, input: Value, window: Value | None, n_fft: int, hop: int, onesided: bool
) -> Sequence[Value]:
    """Emits STFT, which returns (batch, frame, frequency, part); like DFT, in float64 unless n_fft is a power of 2."""
    dtype = op.out_dtype if _is_power_of_two(n_fft) else DataType.DOUBLE
    signal = op.cast(op.unsqueeze(input, 2), dtype)
    length = op.constant(n_fft) if window is None else None
    spectrum = op.STFT(
        signal, op.constant(hop), None if window is None else op.cast(window, dtype), length, onesided=int(onesided)
    )
    parts = op.Split(op.Transpose(op.cast(spectrum, op.out_dtype), perm=[3, 0, 2, 1]), axis=0, num_outputs=2, outputs=2)
    return [op.Squeeze(part, [0]) for part in parts]
