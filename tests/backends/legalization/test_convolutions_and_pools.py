"""Forms of convolutions for runtimes: one axis, strides with dilations, a bias that is cast."""

import pytest
import torch

from fx_onnx.backends.legalization.convolutions_and_pools import (
    legalize_cast_bias,
    legalize_columns,
    legalize_one_spatial_axis,
    legalize_strided_dilations,
)
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


@pytest.mark.parametrize(
    ("options", "spread"),
    [
        ("strides=[2, 1], dilations=[1, 3], kernel_shape=[3, 2], pads=[1, 0, 2, 1]", True),
        ("strides=[3, 2], dilations=[2, 2], group=2, output_padding=[1, 1]", True),
        ("strides=[2, 2], dilations=[1, 1]", False),
        ("dilations=[2, 3]", False),
    ],
)
def test_strides_with_dilations_for_tensorrt(options: str, spread: bool) -> None:
    """A kernel with zeros between its elements."""
    text = f"g (float[N,4,L,M] x, float[4,3,3,2] w) => (float[N,C,K,J] y) {{ y = ConvTranspose<{options}>(x, w) }}"
    inputs = [torch.randn(2, 4, 5, 4), torch.randn(4, 3, 3, 2)]
    operators = ["Unsqueeze", "Pad", "Reshape", "Slice"] * spread + ["ConvTranspose"]
    program = check(model(text), legalize_strided_dilations, inputs, operators)
    assert spread == all("dilations" not in node.attributes for node in program.graph)


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize(("bias", "is_added"), [("h", True), ("i", False), ("constant", False)])
def test_a_cast_bias_for_tensorrt(op_type: str, bias: str, is_added: bool) -> None:
    text = f"""g (float[N,4,L,M] x, float[4,4,3,2] w, float16[4] h, int32[4] i) => (float[N,C,K,J] y) {{
      c = Cast<to=1>({bias})\n y = {op_type}(x, w, c) }}"""
    inputs = [torch.randn(2, 4, 5, 4), torch.randn(4, 4, 3, 2), torch.ones(4).half(), torch.arange(4).int()]
    program = model(text, {"constant": torch.ones(4).half()})
    check(program, legalize_cast_bias, inputs, ["Cast", op_type, *["Add"] * is_added])
