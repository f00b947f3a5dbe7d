"""Convolutions along one axis."""

import pytest
import torch

from fx_onnx.backends.legalization.convolutions_and_pools import legalize_columns, legalize_one_spatial_axis
from tests.passes.checking import check, model

X = torch.randn(2, 4, 9)


@pytest.mark.parametrize(
    ("call", "weight"),
    [
        ("Conv<kernel_shape=[3], pads=[2, 1], strides=[2], dilations=[2], group=2>(x, w, b)", (6, 2, 3)),
        ('Conv<auto_pad="SAME_UPPER">(x, w, b)', (6, 4, 3)),
        ("ConvTranspose<kernel_shape=[3], pads=[1, 0], strides=[2], output_padding=[1], group=2>(x, w, b)", (4, 3, 3)),
    ],
)
def test_convolution(call: str, weight: tuple[int, ...]) -> None:
    program = model(
        f"g (float[N,4,L] x) => (float[N,6,M] y) {{ y = {call} }}", {"w": torch.randn(weight), "b": torch.randn(6)}
    )
    check(program, legalize_one_spatial_axis, [X], ["Unsqueeze", "Unsqueeze", call.partition("<")[0], "Squeeze"])


def test_two_spatial_axes_stay() -> None:
    text = "g (float[N,4,L,2] x) => (float[N,6,M,2] y) { y = Conv(x, w) }"
    assert not legalize_one_spatial_axis(model(text, {"w": torch.randn(6, 4, 3, 1)})).modified


def test_columns_become_a_transposed_convolution_for_tensorrt() -> None:
    text = """g (float[2,12,9] x) => (float[2,3,4,4] y) <int64[2] s = {4, 4}, int64[2] b = {2, 2}> {
      y = Col2Im(x, s, b) }"""
    check(model(text), legalize_columns, [torch.randn(2, 12, 9)], ["Reshape", "ConvTranspose", "Pad"])
