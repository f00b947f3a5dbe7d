"""The operators ``fx_onnx::dft``, ``irdft`` and ``stft`` agree with torch.fft, for fake and for real tensors."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import fx_onnx.torch_internals.custom_ops  # noqa: F401
from tests.compare import assert_close

dft, irdft = torch.ops.fx_onnx.dft, torch.ops.fx_onnx.irdft

PAIRS = torch.randn(2, 5, 3, 2, generator=torch.Generator().manual_seed(0))
Z = torch.view_as_complex(PAIRS)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_transforms_of_pairs(axis: int) -> None:
    assert_close(dft(PAIRS, axis), torch.view_as_real(torch.fft.fft(Z, dim=axis)))
    assert_close(dft(PAIRS, axis, inverse=True), torch.view_as_real(torch.fft.ifft(Z, dim=axis)))


def test_transforms_of_real_numbers() -> None:
    real = PAIRS[..., :1]
    assert_close(dft(real, 1, onesided=True), torch.view_as_real(torch.fft.rfft(real[..., 0], dim=1)))
    assert_close(dft(real, 1), torch.view_as_real(torch.fft.fft(real[..., 0], dim=1)))
    assert_close(irdft(PAIRS, 1, 9), torch.fft.irfft(Z, n=9, dim=1))


@pytest.mark.parametrize("onesided", [True, False])
def test_short_time_transforms(onesided: bool) -> None:
    signal, window = torch.randn(2, 50, generator=torch.Generator().manual_seed(0)), torch.hann_window(16)
    found = torch.ops.fx_onnx.stft(signal, window, 16, 5, onesided)
    want = torch.stft(signal, 16, 5, 16, window, center=False, onesided=onesided, return_complex=True)
    assert_close(torch.complex(*found), want)
    with FakeTensorMode() as mode:
        fakes = torch.ops.fx_onnx.stft(mode.from_tensor(signal), None, 16, 5, onesided)
    assert [fake.shape for fake in fakes] == [want.shape, want.shape]


def test_fake_results_have_the_sizes_of_real_ones() -> None:
    calls = [(dft, PAIRS, 1), (dft, PAIRS[..., :1], 1, False, True), (irdft, PAIRS, 1, 8)]
    for operator, tensor, *rest in calls:
        want = operator(tensor, *rest)
        with FakeTensorMode() as mode:
            fake = operator(mode.from_tensor(tensor), *rest)
        assert fake.shape == want.shape and fake.dtype == want.dtype and fake.stride() == want.stride()
