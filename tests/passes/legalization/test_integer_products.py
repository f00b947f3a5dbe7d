"""MatMulInteger as products of floats."""

import pytest
import torch

from fx_onnx.passes.legalization.integer_products import LegalizeIntegerProducts
from tests.passes.checking import check, model


@pytest.mark.parametrize(
    ("length", "expected"),
    [(258, ["Cast", "Cast", "MatMul", "Cast"]), (600, [*["Cast"] * 5, *["Slice"] * 6, *["MatMul"] * 3, "Add", "Add"])],
)
def test_exact(length: int, expected: list[str]) -> None:
    """The largest sums are exact, which one float32 product of the longer rows would not be."""
    weight = torch.full((length, 2), 127, dtype=torch.int8)
    weight[:, 1] = -128
    weight[0] = -1
    text = f"g (uint8[N,{length}] x) => (int32[N,2] y) {{ y = MatMulInteger(x, w) }}"
    x = torch.full((3, length), 255, dtype=torch.uint8)
    check(model(text, {"w": weight}), LegalizeIntegerProducts(), [x], expected, tolerance=0)


def test_others_stay() -> None:
    """A zero point, and rows of a dynamic length."""
    text = "g (uint8[N,4] x, uint8 z) => (int32[N,2] y) { y = MatMulInteger(x, w, z) }"
    assert not LegalizeIntegerProducts()(model(text, {"w": torch.ones(4, 2, dtype=torch.int8)})).modified
    text = "g (uint8[N,K] x, int8[K,2] w) => (int32[N,2] y) { y = MatMulInteger(x, w) }"
    assert not LegalizeIntegerProducts()(model(text)).modified
