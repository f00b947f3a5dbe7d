"""ATen's Fourier transforms of pairs against torch."""

import pytest
import torch

from tests.decompositions.test_complex_numbers import numbers, same

aten = torch.ops.aten


@pytest.mark.parametrize("normalization", [0, 1, 2])
@pytest.mark.parametrize("dim", [[1], [0], [0, 1], [1, 0]])
def test_transforms(dim: list[int], normalization: int) -> None:
    same(aten._fft_c2c.default, numbers(4, 5), dim, normalization, True)
    same(aten._fft_c2c.default, numbers(4, 5), dim, normalization, False)
    same(aten._fft_r2c.default, numbers(4, 5).real, dim, normalization, True)
    same(aten._fft_r2c.default, numbers(4, 5).real, dim, normalization, False)


@pytest.mark.parametrize("length", [4, 5, 2000, 2001])
@pytest.mark.parametrize("normalization", [0, 1, 2])
def test_back_to_real_numbers(length: int, normalization: int) -> None:
    half = torch.fft.rfft(numbers(3, length).real)
    same(aten._fft_c2r.default, half, [1], normalization, length)
    same(aten._fft_c2r.default, torch.fft.fft(half, dim=0), [0, 1], normalization, length)


NORMS = [None, "backward", "ortho", "forward"]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "irfft", "hfft"])
def test_functions_of_complex_numbers(name: str, norm: str | None) -> None:
    z = numbers(4, 5)
    for n, dim in ((None, -1), (3, 1), (8, 0)):
        same(getattr(aten, f"fft_{name}").default, z, n, dim, norm)
    for s in (None, [3, 6], [4, -1]):
        same(getattr(aten, f"fft_{name}2").default, z, s, [-2, -1], norm)
        same(getattr(aten, f"fft_{name}n").default, z, s, None, norm)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "ihfft", "irfft"])
def test_functions_of_real_numbers(name: str, norm: str | None) -> None:
    for x in (numbers(4, 5).real.clone(), torch.arange(12).reshape(3, 4)):
        for n, dim in ((None, -1), (3, 1), (8, 0)):
            same(getattr(aten, f"fft_{name}").default, x, n, dim, norm)
        same(getattr(aten, f"fft_{name}n").default, x, None, [0, 1], norm)
