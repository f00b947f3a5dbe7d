"""Folding of BatchNormalization and zero padding into convolution, Gemm and pooling."""

import pytest
import torch

from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.weights import LazyWeight
from fx_onnx.passes.fusion.linear_layers import fold_batch_norm, fold_pads
from tests.passes.checking import check, model, origins


def moments(channels: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """Returns scale, shift, mean and var as training leaves them."""
    torch.manual_seed(0)
    scale, shift, mean = torch.randn(3, channels)
    return {name: x.to(dtype) for name, x in
            {"scale": scale, "shift": shift, "mean": mean, "var": torch.rand(channels) + 0.5}.items()}  # fmt: skip


CONV = """g (float[N,4,8,8] x) => (float[N,K,H,W] y) {
  c = Conv<pads=[1,1,1,1], group=2>(x, layer_weight%s)
  y = BatchNormalization<epsilon=0.01>(c, scale, shift, mean, var)
}"""


@pytest.mark.parametrize("bias", [False, True])
def test_conv(bias: bool) -> None:
    """One Conv is left. Its weight is computed from the old one, and its result has the name of the norm's."""
    weights = {"layer_weight": torch.randn(6, 2, 3, 3), **moments(6)}
    if bias:
        weights["layer_bias"] = torch.randn(6)
    program = model(CONV % (", layer_bias" if bias else ""), weights)
    check(program, fold_batch_norm, [torch.randn(2, 4, 8, 8)], ["Conv"])
    assert origins(program, "y") == {"%c", "%y"}
    folded = program.graph[0].inputs[1]
    assert folded is not None and folded.name == "layer_weight_folded"
    assert isinstance(folded.const_value, LazyWeight)
    assert metadata.INPUT_KIND not in folded.metadata_props
    assert program.graph[0].inputs[2].name == ("layer_bias_folded" if bias else "layer_weight_bias_folded")


@pytest.mark.parametrize("groups", [1, 2])
def test_conv_transpose(groups: int) -> None:
    """Axis 1 of a ConvTranspose weight holds the output channels of one group."""
    text = f"""g (float[N,4,5,5] x) => (float[N,K,H,W] y) {{
      c = ConvTranspose<group={groups}, strides=[2,2]>(x, w, b)
      y = BatchNormalization(c, scale, shift, mean, var)
    }}"""
    weights = {"w": torch.randn(4, 6 // groups, 3, 3), "b": torch.randn(6), **moments(6)}
    check(model(text, weights), fold_batch_norm, [torch.randn(2, 4, 5, 5)], ["ConvTranspose"])


@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm(transposed: int) -> None:
    """The features are the columns of the weight as Gemm sees it; beta goes into the bias."""
    text = f"""g (float[N,3] x) => (float[N,5] y) {{
      c = Gemm<alpha=0.5, beta=2.0, transB={transposed}>(x, w, b)
      y = BatchNormalization(c, scale, shift, mean, var)
    }}"""
    weights = {"w": torch.randn((5, 3) if transposed else (3, 5)), "b": torch.randn(5), **moments(5)}
    check(model(text, weights), fold_batch_norm, [torch.randn(4, 3)], ["Gemm"])


def test_half_precision() -> None:
    """float16 is folded in float32 and rounded once."""
    text = CONV.replace("float[", "float16[") % ""
    weights = {"layer_weight": torch.randn(6, 2, 3, 3).half(), **moments(6, torch.float16)}
    program = model(text, weights)
    fold_batch_norm(program)
    assert [node.op_type for node in program.graph] == ["Conv"]
    want = weights["layer_weight"].double() * (
        weights["scale"].double() / (weights["var"].double() + 0.01).sqrt()
    ).reshape(-1, 1, 1, 1)
    got = torch.from_numpy(program.graph[0].inputs[1].const_value.numpy()).double()
    assert (got - want).abs().max() <= want.abs().max() * 2**-11


@pytest.mark.parametrize(
    "text",
    [
        # the weight is tied
        "c = Conv(x, w)\n d = Conv(x, w)\n e = BatchNormalization(c, scale, shift, mean, var)\n y = Add(d, e)",
        # the result of the convolution has another user
        "c = Conv(x, w)\n e = BatchNormalization(c, scale, shift, mean, var)\n y = Add(c, e)",
        # the weight is dequantised
        "q = DequantizeLinear(w8, s)\n c = Conv(x, q)\n y = BatchNormalization(c, scale, shift, mean, var)",
        # a statistic is computed
        "c = Conv(x, w)\n m = Relu(mean)\n y = BatchNormalization(c, scale, shift, m, var)",
    ],
)
def test_left_alone(text: str) -> None:
    """Where folding would store a weight twice or is not possible, nothing changes."""
    whole = f"g (float[N,4,5,5] x) => (float[N,6,H,W] y) <float s = {{0.1}}> {{ {text} }}"
    weights = {"w": torch.randn(6, 4, 3, 3), "w8": torch.ones(6, 4, 3, 3, dtype=torch.int8), **moments(6)}
    program = model(whole, weights)
    operators = [node.op_type for node in program.graph]
    check(program, fold_batch_norm, [torch.randn(2, 4, 5, 5)], operators)


def test_training_mode_is_left_alone() -> None:
    """A norm that computes its statistics from the batch."""
    text = """g (float[N,4,5,5] x) => (float[N,6,H,W] y, float[6] m, float[6] v) {
      c = Conv(x, w)
      y, m, v = BatchNormalization<training_mode=1>(c, scale, shift, mean, var)
    }"""
    program = model(text, {"w": torch.randn(6, 4, 3, 3), **moments(6)})
    assert not fold_batch_norm(program).modified


HEAD = "g (float[N,2,6,7] x) => (float[N,C,H,W] y)"
CONSTANTS = """<int64[8] p = {0,0,1,0,0,0,2,1}, int64[4] q = {1,2,0,1}, int64[2] axes = {3,2}, float zero = {0.0},
  float one = {1.0}, int64[8] r = {0,1,0,0,0,0,0,0}, int64[8] negative = {0,0,1,0,0,0,-1,1}>"""


@pytest.mark.parametrize("pad", ["Pad(x, p)", "Pad(x, p, zero)", "Pad(x, q, zero, axes)"])
@pytest.mark.parametrize("attributes", ["", "pads=[1,1,0,1], strides=[2,1]"])
def test_conv_pads(pad: str, attributes: str) -> None:
    """The padding is added to that of the Conv."""
    text = f"{HEAD} {CONSTANTS} {{ a = {pad}\n y = Conv{f'<{attributes}>' if attributes else ''}(a, w) }}"
    check(model(text, {"w": torch.randn(3, 2, 3, 3)}), fold_pads, [torch.randn(2, 2, 6, 7)], ["Conv"])


def test_average_pool() -> None:
    """An AveragePool that counts its padding."""
    text = f"{HEAD} {CONSTANTS} {{ a = Pad(x, p)\n y = AveragePool<kernel_shape=[3,3], count_include_pad=1>(a) }}"
    check(model(text), fold_pads, [torch.randn(2, 2, 6, 7)], ["AveragePool"])


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
    assert not fold_pads(program).modified
