"""DFT nodes and products with the transform's matrix, compared with torch.fft."""

import pytest
import torch

import fx_onnx
import fx_onnx.torch_internals.custom_ops
from tests.harness import Case, c64, c128, cases, check, f32, f64

dft, irdft = torch.ops.fx_onnx.dft.default, torch.ops.fx_onnx.irdft.default


@cases(
    [
        Case(dft, f32(2, 8, 2, fixed=True), 1, dynamic=False, emits=["DFT"]),
        Case(dft, f32(2, 8, 1), 1, False, True, dynamic=False, emits=["DFT"]),
        Case(dft, f32(2, 8, 2), 1, True, dynamic=False, emits=["DFT"]),
        Case(dft, f32(8, 3, 2), 0, dynamic=False, emits=["DFT"]),
        Case(dft, f32(2, 6, 2), 1, dynamic=False, emits=["Reshape", "MatMul", "Reshape"]),
        Case(dft, f32(2, 6, 1), 1, False, True, dynamic=False, emits=["Reshape", "MatMul", "Reshape"]),
        Case(dft, f32(2, 7, 2), 1, True, dynamic=False),
        Case(dft, f32(7, 3, 2), 0, dynamic=False),
        Case(dft, f64(5, 2), 0, True, dynamic=False),
        Case(dft, f64(4, 2), 0, True, dynamic=False),
        Case(dft, f32(1, 1, 1), 1, False, True, dynamic=False),
        Case(irdft, f32(2, 4, 2), 1, 6, dynamic=False, emits=["Reshape", "MatMul"]),
        Case(irdft, f32(2, 4, 2), 1, 7, dynamic=False),
        Case(irdft, f32(2, 3, 2), 1, 8, dynamic=False),
        Case(irdft, f32(4, 5, 2), 0, 4, dynamic=False),
        Case(irdft, f64(4, 2), 0, 6, dynamic=False),
    ]
)
def test_transforms(case: Case) -> None:
    check(case)


TRANSFORMS_OF_COMPLEX_NUMBERS = (
    torch.fft.fft,
    torch.fft.ifft,
    torch.fft.fft2,
    torch.fft.ifft2,
    torch.fft.fftn,
    torch.fft.ifftn,
)
TRANSFORMS_OF_COMPLEX_NUMBERS += (torch.fft.irfft, torch.fft.irfft2, torch.fft.irfftn, torch.fft.hfft)


@cases(
    [
        *(Case(function, c64(3, 4)) for function in TRANSFORMS_OF_COMPLEX_NUMBERS),
        *(Case(function, f32(3, 5)) for function in (torch.fft.rfft, torch.fft.rfft2, torch.fft.ihfft, torch.fft.fft)),
        *(Case(torch.fft.fft, c64(2, 5), norm=norm, dynamic=False) for norm in ("forward", "backward", "ortho")),
        *(Case(torch.fft.ifft, c64(2, 5), norm=norm) for norm in ("forward", "backward", "ortho")),
        *(Case(torch.fft.irfft, c64(2, 5), norm=norm, dynamic=False) for norm in ("forward", "backward", "ortho")),
        Case(torch.fft.fft, c64(2, 5), n=8, dim=0),
        Case(torch.fft.fft, c64(2, 8), emits=["DFT"], dynamic=False),
        Case(torch.fft.irfft, c64(2, 5), n=9, dynamic=False),
        Case(torch.fft.fft, c128(2, 5)),
        Case(torch.fft.ifft, c128(2, 5), tolerance=1e-6),
        Case(torch.fft.rfftn, f64(2, 5, 4)),
        Case(torch.fft.fftshift, c64(3, 4)),
        Case(torch.fft.ifftshift, f32(3, 4)),
    ]
)
def test_public_functions(case: Case) -> None:
    check(case)


def test_long_signals_of_odd_length_are_exact() -> None:
    """ONNX Runtime's float32 DFT of 4001 numbers has three correct digits only."""

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.view_as_real(torch.fft.rfft(x))

    x = torch.randn(4001, generator=torch.Generator().manual_seed(0))
    (found,) = fx_onnx.export(Model().eval(), (x,))(x)
    want = torch.view_as_real(torch.fft.rfft(x.double()))
    assert float((found - want).abs().max() / want.abs().max()) < 1e-6


@pytest.mark.parametrize("length", [1, 2, 3, 8, 9])
def test_every_length(length: int) -> None:
    check(Case(torch.fft.fft, c64(2, length), dynamic=False))
    check(Case(torch.fft.irfft, c64(2, length // 2 + 1), n=length, dynamic=False))


stft = torch.ops.fx_onnx.stft.default


@cases(
    [
        Case(stft, f32(2, 50), f32(16), 16, 5, True, dynamic=False, emits=["Mul", "Unsqueeze", "Conv", "Split"]),
        Case(stft, f32(2, 50), None, 15, 4, False, emits=["Unsqueeze", "Conv", "Split"]),
        Case(stft, f64(2, 50), None, 15, 4, True, dynamic=False),
        Case(stft, f32(2, 9000), f32(4096), 4096, 1024, True, dynamic=False, tolerance=1e-3),
        Case(stft, f32(1, 9000), None, 3000, 1024, False, dynamic=False, tolerance=1e-3),
    ]
)
def test_short_time_transforms(case: Case) -> None:
    check(case)


def test_a_short_time_transform_in_float64() -> None:
    """ONNX Runtime has no float64 kernel of Conv, so the legalization replaces the node."""

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            window = torch.hann_window(16, dtype=x.dtype)
            return torch.view_as_real(torch.stft(x, 16, 5, window=window, return_complex=True))

    spec = ({0: "batch", 1: "length"},)
    program = fx_onnx.export(Model().eval(), (torch.randn(2, 50).double(),), dynamic_shapes=spec)
    for shape in ((2, 50), (3, 61)):
        x = torch.randn(shape).double()
        torch.testing.assert_close(program(x)[0], Model()(x))
