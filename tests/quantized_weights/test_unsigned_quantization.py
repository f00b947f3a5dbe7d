"""Tests of quantized networks of int8, which become networks of uint8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import fx_onnx

_LIMITS = (-128, 127)
_STEP = 4 / 127


def _rounded(x: Tensor) -> Tensor:
    return torch.fake_quantize_per_tensor_affine(x, _STEP, 0, *_LIMITS)


class Layers(nn.Module):
    """Two layers with quantized activations and weights, which have a scale for each row."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList([first, second])

    def forward(self, x: Tensor) -> Tensor:
        """Rounds the input, each weight and each result."""
        x = _rounded(x)
        for layer in self.layers:
            scale = layer.weight.detach().abs().flatten(1).amax(1) / 127
            zero = torch.zeros(len(scale), dtype=torch.int32)
            weight = torch.fake_quantize_per_channel_affine(layer.weight, scale, zero, 0, -127, 127)
            call = nn.functional.linear if isinstance(layer, nn.Linear) else nn.functional.conv2d
            x = _rounded(call(x, weight, layer.bias))
        return x


class Scores(nn.Module):
    """The products of an attention, whose keys ONNX Runtime transposes."""

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, size) to (batch, tokens, tokens)."""
        return _rounded(x) @ _rounded(x * 1.1).transpose(1, 2)


class Stored(nn.Module):
    """A product with a stored int8 weight, of which something else may be read too."""

    def __init__(self, reads_weight: bool = False, rounds: bool = True) -> None:
        super().__init__()
        self.reads_weight, self.rounds = reads_weight, rounds
        self.weight = nn.Parameter(torch.randint(-127, 128, (9, 8), dtype=torch.int8), requires_grad=False)
        self.register_buffer("scale", torch.rand(9) / 100)

    def forward(self, x: Tensor) -> Any:
        """(rows, 8) to (rows, 9)."""
        if self.rounds:
            x = _rounded(x)
        y = nn.functional.linear(x, self.weight.float() * self.scale[:, None])
        y = _rounded(y) if self.rounds else y
        return (y, self.weight * 1) if self.reads_weight else y


def _in_session(program: fx_onnx.ONNXProgram, x: Tensor) -> Tensor:
    """Returns the first result in a session with default settings, as other programs make it."""
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    return torch.tensor(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])


def _kinds(program: fx_onnx.ONNXProgram) -> set[str]:
    """Returns the dtypes of what DequantizeLinear reads."""
    nodes = [node for node in program.model.graph if node.op_type == "DequantizeLinear"]
    assert all(node.inputs[2] is not None for node in nodes)
    return {node.inputs[0].dtype.name for node in nodes if node.inputs[0] is not None and node.inputs[0].dtype}


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: Layers(nn.Linear(64, 64), nn.Linear(64, 9)), (5, 64)),
        (lambda: Layers(nn.Conv2d(8, 8, 3), nn.Conv2d(8, 4, 3)), (2, 8, 9, 9)),
        (Scores, (2, 8, 64)),
        (Stored, (5, 8)),
    ],
)
@pytest.mark.parametrize("opset", [18, 21, 23])
def test_a_quantized_network_is_unsigned_and_exact_at_default_settings(
    make: Callable[[], nn.Module], shape: tuple[int, ...], opset: int
) -> None:
    torch.manual_seed(0)
    module = make()
    x = torch.rand(shape) * 8 - 4
    program = fx_onnx.export(module.eval(), (x,), opset_version=opset)
    assert _kinds(program) == {"UINT8"}
    onnx.checker.check_model(program.model_proto, full_check=True)
    want = module(x).detach()
    torch.testing.assert_close(_in_session(program, x), want, atol=1.01 * _STEP, rtol=1e-5)
    assert (_in_session(program, x) - want).abs().gt(1e-3).float().mean() < 0.01  # a tie may be rounded otherwise


def test_a_weight_that_something_else_reads_stays_too() -> None:
    module, x = Stored(reads_weight=True).eval(), torch.randn(5, 8)
    program = fx_onnx.export(module, (x,))
    y, weight = program(x)
    assert _kinds(program) == {"UINT8"} and weight.dtype == torch.int8
    torch.testing.assert_close(weight, module.weight.data)
    torch.testing.assert_close(y, module(x)[0], atol=1.01 * _STEP, rtol=1e-5)


def test_new_weights_are_shifted() -> None:
    module, x = Stored().eval(), torch.randn(5, 8)
    program = fx_onnx.export(module, (x,))
    other = Stored().eval()
    program.apply_weights(other.state_dict())
    assert _kinds(program) == {"UINT8"} and "weight" in program.model.graph.initializers
    torch.testing.assert_close(program(x)[0], other(x), atol=1.01 * _STEP, rtol=1e-5)


@pytest.mark.parametrize(
    ("module", "options"),
    [
        (Stored(rounds=False), {}),
        (Layers(nn.Linear(8, 8), nn.Linear(8, 9)), {"target": "tensorrt"}),
    ],
)
def test_what_has_no_integer_products_stays_signed(module: nn.Module, options: dict[str, Any]) -> None:
    """Weights whose activations are floats, and the target that has int8 only."""
    program = fx_onnx.export(module.eval(), (torch.randn(5, 8),), **options)
    nodes = [node for node in program.model.graph if node.op_type == "DequantizeLinear"]
    assert {node.inputs[0].dtype.name for node in nodes if node.inputs[0] is not None} == {"INT8"}  # type: ignore[union-attr]


class Returned(nn.Module):
    """Returns the integers too, with their dtype."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keeps the shape."""
        rounded = torch.ops.quantized_decomposed.quantize_per_tensor(x, _STEP, 0, *_LIMITS, torch.int8)
        return rounded, torch.ops.quantized_decomposed.dequantize_per_tensor(rounded, _STEP, 0, *_LIMITS, torch.int8)


def test_integers_that_the_graph_returns_keep_their_dtype() -> None:
    import torch.ao.quantization.fx._decomposed  # it defines the operators

    x = torch.rand(3, 4) * 8 - 4
    integers, floats = fx_onnx.export(Returned().eval(), (x,))(x)
    want = Returned()(x)
    assert integers.dtype == torch.int8
    np.testing.assert_array_equal(integers, want[0])
    torch.testing.assert_close(floats, want[1])
