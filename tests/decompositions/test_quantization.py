"""Decompositions of quantization against torch."""

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers torch.ops.quantized_decomposed

from fx_onnx.decompositions.quantization import scaled_mm, scaled_mm_v2
from tests.compare import assert_close
from tests.decompositions.harness import assert_matches_torch, randn
from tests.torch_versions import needs

aten, quantized = torch.ops.aten, torch.ops.quantized_decomposed
INT8 = (-128, 127, torch.int8)
x = randn(5, 4) * 20
integers = torch.arange(-10, 10, dtype=torch.int8).reshape(5, 4)
scales, zeros = torch.tensor([0.1, 0.2, 0.5, 1.0]), torch.tensor([0, 3, -5, 1])
row_scales, row_zeros = randn(5, 1).abs() + 0.1, torch.tensor([[0], [3], [-5], [1], [2]])
group_scales, group_zeros = randn(5, 2).abs() + 0.1, torch.tensor([[0, 3], [-5, 1], [2, 1], [0, 0], [1, 4]])


def test_per_tensor() -> None:
    one, zero = torch.tensor([0.1]), torch.tensor([3])
    low, high = torch.tensor(-128), torch.tensor(127)
    for values in (x, x.half(), x.bfloat16()):
        assert_matches_torch(quantized.quantize_per_tensor.default, values, 0.1, 3, *INT8)
    assert_matches_torch(quantized.quantize_per_tensor.tensor, x, one, zero, *INT8)
    assert_matches_torch(quantized.quantize_per_tensor.tensor2, x, one, zero, low, high, torch.int8)
    assert_matches_torch(quantized.dequantize_per_tensor.default, integers, 0.1, 3, *INT8)
    assert_matches_torch(quantized.dequantize_per_tensor.default, integers, 0.1, 3, *INT8, out_dtype=torch.float16)
    assert_matches_torch(quantized.dequantize_per_tensor.tensor, integers, one, zero, *INT8)
    assert_matches_torch(quantized.dequantize_per_tensor.tensor2, integers, one, zero, low, high, torch.int8)


def test_per_channel() -> None:
    assert_matches_torch(quantized.quantize_per_channel.default, x, scales, zeros, 1, *INT8)
    assert_matches_torch(quantized.dequantize_per_channel.default, integers, scales, zeros, 1, *INT8)
    assert_matches_torch(quantized.dequantize_per_channel.default, integers, scales, None, 1, *INT8)


def test_per_token() -> None:
    assert_matches_torch(quantized.quantize_per_token.default, x, row_scales, row_zeros, *INT8)
    assert_matches_torch(
        quantized.dequantize_per_token.default, integers, row_scales.double(), row_zeros, *INT8, torch.float32
    )


def test_per_group() -> None:
    assert_matches_torch(
        quantized.quantize_per_channel_group.default, x, group_scales, group_zeros, -8, 7, torch.int8, 2
    )
    for rows, zero, group in ((group_scales, group_zeros, 2), (group_scales, None, 2), (row_scales, row_zeros, 32)):
        assert_matches_torch(
            quantized.dequantize_per_channel_group.default,
            integers, rows, zero, -8, 7, torch.int8, group, torch.float32,
        )  # fmt: skip


def test_choose_qparams() -> None:
    for values in (x, x.abs() + 1, torch.zeros(3)):
        assert_matches_torch(quantized.choose_qparams.tensor, values, *INT8[:2], 1e-5, torch.int8)
        assert_matches_torch(quantized.choose_qparams_symmetric.tensor, values, *INT8[:2], 1e-5, torch.int8)
        assert_matches_torch(quantized.choose_qparams_symmetric.tensor, values, 0, 255, 1e-5, torch.uint8)
        assert_matches_torch(quantized.choose_qparams_per_token.default, values, torch.int8)
        assert_matches_torch(quantized.choose_qparams_per_token_asymmetric.default, values, torch.int8)
    assert_matches_torch(quantized.choose_qparams_per_token.default, x.half(), torch.int8)


def test_fake_quantize() -> None:
    for target in (aten.fake_quantize_per_tensor_affine, aten.fake_quantize_per_tensor_affine_cachemask):
        assert_matches_torch(target.default, x, 0.1, 3, *INT8[:2])
    assert_matches_torch(
        aten.fake_quantize_per_tensor_affine.tensor_qparams, x, torch.tensor([0.1]), torch.tensor([3]), -8, 7
    )
    for target in (aten.fake_quantize_per_channel_affine, aten.fake_quantize_per_channel_affine_cachemask):
        assert_matches_torch(target.default, x, scales, zeros.int(), 1, *INT8[:2])
    assert_matches_torch(quantized.fake_quant_per_channel.default, x, scales, zeros, 1, *INT8[:2])


def test_fake_quantize_with_a_switch() -> None:
    one = torch.tensor([0.1])
    for enabled in (0, 1):
        assert_matches_torch(
            aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default,
            x, one, torch.tensor([3]), torch.tensor([enabled]), -8, 7,
        )  # fmt: skip


def test_products() -> None:
    weight = torch.randint(-128, 128, (8, 16), dtype=torch.int8)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        rows = randn(4, 16, dtype=dtype)
        assert_matches_torch(aten._weight_int8pack_mm.default, rows, weight, randn(8, dtype=dtype).abs() / 64)
    a, b = randn(16, 32).to(torch.float8_e4m3fn), randn(16, 32, seed=1).to(torch.float8_e4m3fn).t()
    whole = torch.tensor(0.5)
    for dtype in (torch.float32, torch.bfloat16):
        assert_matches_torch(aten._scaled_mm.default, a, b, whole, whole, out_dtype=dtype)
        assert_matches_torch(aten._scaled_mm.default, a, b, whole, whole, randn(16, dtype=dtype), out_dtype=dtype)
    assert_matches_torch(aten._scaled_mm.default, a, b, whole, whole)


@needs("scales of rows")
def test_products_with_a_scale_of_each_row() -> None:
    a, b = randn(16, 32).to(torch.float8_e4m3fn), randn(16, 32, seed=1).to(torch.float8_e4m3fn).t()
    whole, rows, columns = torch.tensor(0.5), randn(16, 1).abs(), randn(1, 16, seed=1).abs()
    for dtype in (torch.float32, torch.bfloat16):
        assert_matches_torch(aten._scaled_mm.default, a, b, rows, columns, out_dtype=dtype)
    for kind, left, right in ((0, whole, whole), (1, rows, columns)):
        scaled = ([left], [kind], [], [right], [kind], [])
        assert_matches_torch(aten._scaled_mm_v2.default, a, b, *scaled, None, torch.bfloat16)
        assert_matches_torch(aten._scaled_mm_v2.default, a, b, *scaled, randn(16, dtype=torch.bfloat16), torch.bfloat16)


def test_products_of_scaled_blocks() -> None:
    """Compares blockwise scales with their definition, because torch's own kernels run on GPUs only.

    The last blocks have fewer than 128 rows or columns.
    """
    a, b = randn(130, 256).to(torch.float8_e4m3fn), randn(144, 256, seed=1).to(torch.float8_e4m3fn).t()
    large, small, tokens, columns = (randn(*sizes).abs() for sizes in ((2, 2), (2, 2), (130, 2), (2, 144)))
    for left, right in ((tokens, small), (tokens, columns), (large, small)):
        of_rows = left if len(left) == 130 else left[[0] * 128 + [1] * 2]
        of_columns = right if right.shape[1] == 144 else right[:, [0] * 128 + [1] * 16]
        want = torch.zeros(130, 144)
        for i, k in enumerate((slice(0, 128), slice(128, 256))):
            want += (a[:, k].float() * of_rows[:, i, None]) @ (b[k].float() * of_columns[i])
        assert_close(scaled_mm(a, b, left, right, out_dtype=torch.float32), want)


def test_scales_in_a_hardware_order_are_refused() -> None:
    a, b = torch.ones(128, 128).to(torch.float8_e4m3fn), torch.ones(128, 128).to(torch.float8_e4m3fn)
    scales = torch.ones(128, 4).to(torch.float8_e8m0fnu)
    with pytest.raises(NotImplementedError, match="float8_e8m0fnu"):
        scaled_mm(a, b, scales, scales)
    with pytest.raises(NotImplementedError, match="TensorWise and RowWise only"):
        scaled_mm_v2(a, b, [scales], [3], [1], [scales], [3], [1], None, torch.bfloat16)
