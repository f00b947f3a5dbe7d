"""Decompositions of torchao's operators against torchao."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import fx_onnx.quantized_weights.torchao_decompositions  # noqa: F401  registers them
from tests.decompositions.harness import assert_matches_torch, randn

pytest.importorskip("torchao", reason="torchao is in the extra 'test'")
import torchao.quantization.quant_primitives  # registers torch.ops.torchao

torchao = torch.ops.torchao
x = randn(4, 8) * 3
BLOCKS = ([4, 8], [1, 8], [4, 1], [1, 4], [2, 4], [2, 1])


def check(name: str, *args: Any, **kwargs: Any) -> Any:
    return assert_matches_torch(getattr(torchao, name).default, *args, **kwargs)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
@pytest.mark.parametrize("mapping", ["SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR", "ASYMMETRIC"])
def test_affine(block: list[int], mapping: str) -> None:
    """Tests the choice of parameters, the quantization with them, and the dequantization."""
    for keepdim in (False, True):
        scale, zero = check(
            "choose_qparams_affine", x, mapping, block, torch.int8, -8, 7, 1e-5, torch.float32, torch.int32, keepdim
        )
        for values in (x, x.bfloat16()):
            integers = check("quantize_affine", values, block, scale, zero, torch.int8, -8, 7)
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for zeros in (zero, None, zero.float()):
                check("dequantize_affine", integers, block, scale, zeros, torch.int8, -8, 7, output_dtype=dtype)


def test_defaults() -> None:
    scale, zero = check("choose_qparams_affine", x, "ASYMMETRIC", [1, 8], torch.uint8)
    integers = check("quantize_affine", x, [1, 8], scale, zero, torch.uint8)
    check("dequantize_affine", integers, [1, 8], scale, zero, torch.uint8)
    check("choose_qparams_affine", x.half(), "SYMMETRIC", [1, 4], torch.int8)


def test_dtypes_without_kernels() -> None:
    for dtype in (torch.uint4, torch.uint2):
        scale, zero = check("choose_qparams_affine", x, "ASYMMETRIC", [1, 4], dtype, None, None, 1e-5)
        integers = check("quantize_affine", x, [1, 4], scale, zero, dtype)
        assert integers.dtype == torch.uint8
        check("dequantize_affine", integers, [1, 4], scale, zero, dtype)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8(dtype: torch.dtype) -> None:
    def both(values: Tensor, scale: Tensor) -> None:
        small = check("quantize_affine_float8_non_decomposed", values, scale, dtype)
        check("dequantize_affine_float8_non_decomposed", small, scale, torch.bfloat16)

    for block in ([4, 8], [1, 8], [2, 4]):
        both(x, check("choose_scale_float8", x, block, dtype))
    both(x, check("choose_scale_float8", x, [4, 8], dtype, torch.float8_e8m0fnu))
    both(x, check("choose_scale_float8", x, [4, 8], dtype, hp_value_lb=1.0, hp_value_ub=2.0))
    both(x * 1e4, torch.tensor(0.5))
