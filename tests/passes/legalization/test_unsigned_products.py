"""Products of uint8 as products of int8."""

import pytest
import torch

from fx_onnx.passes.legalization.unsigned_products import LegalizeUnsignedProducts
from fx_onnx.targets.kernel_support import support
from fx_onnx.targets.known_targets import find_target
from tests.passes.checking import check_equal, model


@pytest.mark.parametrize("batch", [(), (2,)])
def test_products_of_int8(batch: tuple[int, ...]) -> None:
    """Also of matrices with a batch. The CUDA provider has kernels for all nodes afterwards."""
    rows = "".join(f"{size}," for size in batch)
    text = f"g (uint8[{rows}M,4] a, int8[{rows}4,3] b) => (int32[{rows}M,3] y) {{ y = MatMulInteger(a, b) }}"
    program = model(text)
    assert [each.operator for each in support(program, find_target("onnxruntime-cuda")).missing] == ["MatMulInteger"]
    a, b = torch.randint(0, 256, (*batch, 5, 4), dtype=torch.uint8), torch.randint(-128, 128, (*batch, 4, 3))
    check_equal(program, LegalizeUnsignedProducts(), [a, b.to(torch.int8)])
    assert not support(program, find_target("onnxruntime-cuda")).missing


@pytest.mark.parametrize(("a", "b", "zero"), [("int8", "int8", ""), ("uint8", "uint8", ""), ("uint8", "int8", ", z")])
def test_others_stay(a: str, b: str, zero: str) -> None:
    """Products of int8, weights of uint8, and zero points."""
    text = f"g ({a}[M,4] a, {b}[4,3] b) => (int32[M,3] y) <{a} z = {{3}}> {{ y = MatMulInteger(a, b{zero}) }}"
    assert not LegalizeUnsignedProducts()(model(text)).modified
