"""Views as another dtype: integers and booleans of all widths, at all opsets, at another size of the first axis."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.decompositions.bits import view_dtype

INTEGERS = [getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]


def random_bytes(rows: int) -> Tensor:
    return torch.randint(0, 256, (rows, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(rows))


class Views(nn.Module):
    """Reads the bits as all integer dtypes."""

    def forward(self, x: Tensor) -> Any:
        return [x.view(dtype) for dtype in INTEGERS]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.uint64], ids=str)
def test_integers_of_any_width(dtype: torch.dtype) -> None:
    model, x = Views().eval(), random_bytes(5).view(dtype)
    program = fx_onnx.export(model, (random_bytes(3).view(dtype),), dynamic_shapes=({0: "rows"},), opset_version=18)
    torch.testing.assert_close(list(program(x)), model(x), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_floats_of_any_width_with_bit_cast(dtype: torch.dtype) -> None:
    model, x = Views().eval(), torch.randn(5, 4, dtype=dtype)
    program = fx_onnx.export(model, (x[:3],), dynamic_shapes=({0: "rows"},), opset_version=26)
    torch.testing.assert_close(list(program(x)), model(x), rtol=0, atol=0)


def test_the_decomposition_of_each_pair_of_widths() -> None:
    for old in INTEGERS:
        for new in INTEGERS:
            if old.itemsize != new.itemsize:
                x = random_bytes(3).view(old)
                torch.testing.assert_close(view_dtype(x, new), x.view(new), rtol=0, atol=0)


def test_floats_without_bit_cast_are_refused() -> None:
    with pytest.raises(fx_onnx.TranslationError, match=r"Only ONNX's BitCast can read torch.float32 as torch.int32"):
        fx_onnx.export(Views().eval(), (torch.randn(2, 4),), opset_version=20)
