"""Complex decompositions of Fourier transforms against torch."""

import pytest
import torch

import fx_onnx.torch_internals.custom_ops  # noqa: F401  declares torch.ops.fx_onnx.dft
from tests.complex_tensors.harness import assert_complex_matches_torch
from tests.decompositions.harness import complex_randn

aten = torch.ops.aten


@pytest.mark.parametrize("normalization", [0, 1, 2])
@pytest.mark.parametrize("dim", [[1], [0], [0, 1], [1, 0]])
def test_transforms(dim: list[int], normalization: int) -> None:
    assert_complex_matches_torch(aten._fft_c2c.default, complex_randn(4, 5), dim, normalization, True)
    assert_complex_matches_torch(aten._fft_c2c.default, complex_randn(4, 5), dim, normalization, False)
    assert_complex_matches_torch(aten._fft_r2c.default, complex_randn(4, 5).real, dim, normalization, True)
    assert_complex_matches_torch(aten._fft_r2c.default, complex_randn(4, 5).real, dim, normalization, False)


@pytest.mark.parametrize("length", [4, 5, 2000, 2001])
@pytest.mark.parametrize("normalization", [0, 1, 2])
def test_transforms_to_real_numbers(length: int, normalization: int) -> None:
    half = torch.fft.rfft(complex_randn(3, length).real)
    assert_complex_matches_torch(aten._fft_c2r.default, half, [1], normalization, length)
    assert_complex_matches_torch(aten._fft_c2r.default, torch.fft.fft(half, dim=0), [0, 1], normalization, length)


NORMS = [None, "backward", "ortho", "forward"]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "irfft", "hfft"])
def test_torch_fft_of_complex_numbers(name: str, norm: str | None) -> None:
    z = complex_randn(4, 5)
    for n, dim in ((None, -1), (3, 1), (8, 0)):
        assert_complex_matches_torch(getattr(aten, f"fft_{name}").default, z, n, dim, norm)
    for s in (None, [3, 6], [4, -1]):
        assert_complex_matches_torch(getattr(aten, f"fft_{name}2").default, z, s, [-2, -1], norm)
        assert_complex_matches_torch(getattr(aten, f"fft_{name}n").default, z, s, None, norm)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "ihfft", "irfft"])
def test_torch_fft_of_real_numbers(name: str, norm: str | None) -> None:
    for x in (complex_randn(4, 5).real.clone(), torch.arange(12).reshape(3, 4)):
        for n, dim in ((None, -1), (3, 1), (8, 0)):
            assert_complex_matches_torch(getattr(aten, f"fft_{name}").default, x, n, dim, norm)
        assert_complex_matches_torch(getattr(aten, f"fft_{name}n").default, x, None, [0, 1], norm)
