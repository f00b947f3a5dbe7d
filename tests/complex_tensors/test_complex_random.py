"""Decompositions of random complex numbers: dtype, shape and moments of the parts."""

import math

import pytest
import torch

import fx_onnx
from fx_onnx.decompositions.registry import COMPLEX, Complex

aten = torch.ops.aten
SIZE = (200, 100)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize(
    ("target", "mean", "std"), [(aten.rand, 0.5, 1 / math.sqrt(12)), (aten.randn, 0.0, math.sqrt(0.5))], ids=str
)
def test_moments(target: object, mean: float, std: float, dtype: torch.dtype) -> None:
    """Tests both parts of the numbers that are drawn for a shape, for a complex tensor and for a real tensor."""
    torch.manual_seed(0)
    like = getattr(aten, f"{target.__name__}_like")  # type: ignore[attr-defined]
    real = torch.zeros(SIZE, dtype=dtype.to_real())
    drawn = [
        COMPLEX[target.default](SIZE, dtype=dtype),  # type: ignore[attr-defined]
        COMPLEX[like.default](Complex(real, real)),
        COMPLEX[like.default](torch.zeros(SIZE), dtype=dtype),
    ]
    for parts in drawn:
        assert not torch.equal(parts.real, parts.imag)
        for part in parts:
            assert (part.shape, part.dtype) == (SIZE, dtype.to_real())
            assert abs(float(part.mean()) - mean) < 0.02 and abs(float(part.std()) - std) < 0.02


def test_through_an_export() -> None:
    class Noise(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.view_as_real(torch.randn(*SIZE, dtype=torch.complex64) * x)

    program = fx_onnx.export(Noise().eval(), (torch.ones(()),), verbose=False)
    (noise,) = program(torch.ones(()))
    assert noise.shape == (*SIZE, 2)
    assert abs(float(noise.std()) - math.sqrt(0.5)) < 0.02
