"""Folding of zero padding into convolution and pooling."""

import pytest
import torch

from fx_onnx.passes.fusion.pad_folding import FoldPads
from tests.passes.checking import check, model

HEAD = "g (float[N,2,6,7] x) => (float[N,C,H,W] y)"
CONSTANTS = """<int64[8] p = {0,0,1,0,0,0,2,1}, int64[4] q = {1,2,0,1}, int64[2] axes = {3,2}, float zero = {0.0},
  float one = {1.0}, int64[8] r = {0,1,0,0,0,0,0,0}, int64[8] negative = {0,0,1,0,0,0,-1,1}>"""


@pytest.mark.parametrize("pad", ["Pad(x, p)", "Pad(x, p, zero)", "Pad(x, q, zero, axes)"])
@pytest.mark.parametrize("attributes", ["", "pads=[1,1,0,1], strides=[2,1]"])
def test_conv(pad: str, attributes: str) -> None:
    """The padding is added to that of the Conv."""
    text = f"{HEAD} {CONSTANTS} {{ a = {pad}\n y = Conv{f'<{attributes}>' if attributes else ''}(a, w) }}"
    check(model(text, {"w": torch.randn(3, 2, 3, 3)}), FoldPads(), [torch.randn(2, 2, 6, 7)], ["Conv"])


def test_average_pool() -> None:
    """An AveragePool that counts its padding."""
    text = f"{HEAD} {CONSTANTS} {{ a = Pad(x, p)\n y = AveragePool<kernel_shape=[3,3], count_include_pad=1>(a) }}"
    check(model(text), FoldPads(), [torch.randn(2, 2, 6, 7)], ["AveragePool"])


@pytest.mark.parametrize(
    "body",
    [
        "a = Pad(x, p, one)\n y = Conv(a, w)",
        "a = Pad<mode=\"reflect\">(x, p)\n y = Conv(a, w)",
        "a = Pad(x, negative)\n y = Conv(a, w)",
        "a = Pad(x, r)\n y = Conv(a, v)",
        "a = Pad(x, p)\n y = Conv<auto_pad=\"SAME_UPPER\">(a, w)",
        "a = Pad(x, p)\n y = AveragePool<kernel_shape=[3,3]>(a)",
        "a = Pad(x, p)\n y = MaxPool<kernel_shape=[3,3]>(a)",
        "a = Pad(x, p)\n b = Conv(a, w)\n c = Conv(a, w)\n y = Add(b, c)",
    ],
)  # fmt: skip
def test_declined(body: str) -> None:
    """Other values, modes and axes, a pooling that ignores padding, and a second consumer."""
    weights = {"w": torch.randn(3, 2, 3, 3), "v": torch.randn(3, 3, 3, 3)}
    program = model(f"{HEAD} {CONSTANTS} {{ {body} }}", weights)
    assert not FoldPads()(program).modified
