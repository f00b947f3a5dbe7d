"""Convolutions, pooling and recurrent layers."""

import logging

import onnx_ir as ir
import onnxruntime
import pytest
import torch
import torch.nn.functional as F

import fx_onnx
from fx_onnx.core import metadata
from fx_onnx.passes.legalization.network_layers import (
    LegalizeInitialStates,
    legalize_group_norm,
    legalize_one_spatial_axis,
    legalize_pads,
)
from fx_onnx.passes.rewriter import LOGGER_NAME
from tests.compare import assert_close
from tests.passes.checking import check, model

# ---------------------------------------------------------------- pads before a pooling


class Padded(torch.nn.Module):
    """Pads with zeros, then pools with padding."""

    def __init__(self, pooling: str, **options: int) -> None:
        super().__init__()
        self.pooling, self.options = getattr(F, pooling), options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Makes all values negative, so that a zero is the maximum of a window."""
        return self.pooling(F.pad(-x.abs() - 1, (1, 2, 2, 1)), 3, **self.options)


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize(
    "module",
    [
        Padded("max_pool2d"),
        Padded("max_pool2d", stride=2, ceil_mode=True),
        Padded("max_pool2d", padding=1),
        Padded("avg_pool2d", padding=1),
        Padded("avg_pool2d", stride=2, ceil_mode=True),
    ],
)
def test_pads_before_pooling(module: Padded, optimize: bool) -> None:
    """The pooling reads the zeros of the Pad as values."""
    x = torch.randn(2, 3, 6, 7)
    program = fx_onnx.export(module.eval(), (x,), optimize=optimize, verbose=False)
    assert_close(program(x), module(x))


def test_a_pad_gets_axes() -> None:
    """Only a Pad with a pooling as consumer gets axes."""
    text = """g (float[N,2,6,7] x) => (float[N,C,H,W] y, float[N,D,E,F] z)
      <int64[8] p = {0,0,1,0,0,0,2,1}, float one = {1.0}>
      { a = Pad(x, p)\n y = MaxPool<kernel_shape=[3,3]>(a)\n b = Pad(x, p, one)\n z = Sin(b) }"""
    before = model(text)  # the merged form is right for positive values, so the results agree
    check(before, legalize_pads, [torch.rand(2, 2, 6, 7)], ["Pad", "MaxPool", "Pad", "Sin"])
    assert [len(node.inputs) for node in before.graph] == [4, 1, 3, 1]


def test_a_pad_of_unknown_shape_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Without the rank, the list of all axes is unknown."""
    before = model("g (float[N,2,6,7] x, int64[8] p) => (y) { a = Pad(x, p)\n y = MaxPool<kernel_shape=[3,3]>(a) }")
    before.graph.inputs[0].shape = None
    with caplog.at_level(logging.DEBUG, logger=LOGGER_NAME):
        assert not legalize_pads(before).modified
    assert "legalize_pads declines Pad a: the shape of its input is unknown" in caplog.text


# ---------------------------------------------------------------- convolutions along one axis


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


# ---------------------------------------------------------------- initial states of recurrent layers


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("op_type", GATES)
def test_absent_states(op_type: str, direction: str) -> None:
    ways = 2 if direction == "bidirectional" else 1
    torch.manual_seed(0)
    weights = {"w": torch.randn(ways, GATES[op_type] * 4, 3), "r": torch.randn(ways, GATES[op_type] * 4, 4)}
    text = f"""g (float[T,B,3] x) => (float[T,{ways},B,4] y, float[{ways},B,4] h) {{
      y, h = {op_type}<hidden_size=4, direction="{direction}">(x, w, r)
    }}"""
    expected = [op_type, "Shape", "Concat", "Expand"]
    check(model(text, weights), LegalizeInitialStates(), [torch.randn(5, 2, 3)], expected)


def test_a_given_state_stays() -> None:
    torch.manual_seed(0)
    weights = {"w": torch.randn(1, 12, 3), "r": torch.randn(1, 12, 4)}
    text = """g (float[T,B,3] x, float[1,B,4] h) => (float[T,1,B,4] y) {
      y = GRU<hidden_size=4>(x, w, r, , , h)
    }"""
    inputs = [torch.randn(5, 2, 3), torch.randn(1, 2, 4)]
    check(model(text, weights), LegalizeInitialStates(), inputs, ["GRU"])


# ---------------------------------------------------------------- groups of channels


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ("2,6,4,5", [(2, 6, 4, 5)]),
        ("N,6,4", [(3, 6, 4), (0, 6, 4)]),
        ("N,6,H,W", [(3, 6, 4, 5), (0, 6, 4, 5), (2, 6, 0, 5)]),
        ("2,6,0", [(2, 6, 0)]),
    ],
)
def test_group_norms(shape: str, sizes: list[tuple[int, ...]]) -> None:
    """ONNX Runtime's expansion of GroupNormalization fails if an axis is empty."""
    scale, bias = torch.rand(6), torch.rand(6)
    text = f"g (float[{shape}] x) => (y) {{ y = GroupNormalization<num_groups=3, epsilon=0.25>(x, scale, bias) }}"
    found = model(text, {"scale": scale, "bias": bias}, opset=21)
    legalize_group_norm(found)
    assert "InstanceNormalization" in [node.op_type for node in found.graph]
    session = onnxruntime.InferenceSession(ir.to_proto(found).SerializeToString())
    for size in sizes:
        x = torch.randn(size)
        (result,) = session.run(None, {"x": x.numpy()})
        assert_close(torch.from_numpy(result), F.group_norm(x, 3, scale, bias, 0.25))


def test_group_norms_of_other_dtypes_and_explicit_ones_stay() -> None:
    text = "g ({0}[2,6,4] x, {0}[6] s, {0}[6] b) => ({0}[2,6,4] y) {{ y = GroupNormalization<num_groups=3>(x, s, b) }}"
    inputs = [torch.rand(2, 6, 4).double(), torch.rand(6).double(), torch.rand(6).double()]
    check(model(text.format("double"), opset=21), legalize_group_norm, inputs, ["GroupNormalization"])
    explicit = model(text.format("float"), opset=21)
    explicit.graph[0].meta[metadata.EXPLICIT] = True
    check(explicit, legalize_group_norm, [each.float() for each in inputs], ["GroupNormalization"])
