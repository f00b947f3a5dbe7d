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
