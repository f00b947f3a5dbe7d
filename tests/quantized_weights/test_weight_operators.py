"""The operators on packed weights, in eager mode."""

import math

import ml_dtypes
import numpy as np
import torch

from fx_onnx.quantized_weights.weight_operators import FLOAT4_VALUES, dequantize, exponents_as_floats, stored


def test_the_numbers_of_float4() -> None:
    codes = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn)
    assert codes.astype(np.float32).tobytes() == np.array(FLOAT4_VALUES, np.float32).tobytes()


def test_exponents() -> None:
    *powers, last = exponents_as_floats(torch.arange(256, dtype=torch.uint8)).tolist()
    assert powers == [2.0 ** (code - 127) for code in range(255)] and math.isnan(last)


def test_blocks_whose_last_one_is_shorter() -> None:
    data, scale = torch.arange(10, dtype=torch.int8).reshape(2, 5), torch.tensor([[1.0, 10.0], [100.0, 1000.0]])
    zero, offset = torch.tensor([[1, 0], [0, 2]], dtype=torch.int8), torch.full((2, 2), 0.5)
    result = dequantize(data, scale, zero, offset=offset, blocks=[1, 3], dtype=torch.float32)
    assert result.tolist() == [[-0.5, 0.5, 1.5, 30.5, 40.5], [500.5, 600.5, 700.5, 6000.5, 7000.5]]


def test_tables_and_exponents_are_rounded_once() -> None:
    codes, table = torch.tensor([[0, 1], [2, 1]], dtype=torch.uint8), torch.tensor([1.0, -0.1, 7.0])
    exponents = torch.tensor([[126], [128]], dtype=torch.uint8)
    found = dequantize(codes, exponents, kind="table", table=table, bits=4, dtype=torch.bfloat16)
    assert torch.equal(found, torch.tensor([[0.5, -0.05], [14.0, -0.2]]).bfloat16())
    found = dequantize(stored("nibbles", codes), torch.ones(()), kind="float4_e2m1", bits=4, dtype=torch.float32)
    assert found.tolist() == [[0.0, 0.0, 0.5, 0.0], [1.0, 0.0, 0.5, 0.0]]
