"""The quantizers of Model-Optimizer, as it writes them: Q/DQ of the standard where it has them, equal to eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function

import fx_onnx
from fx_onnx.messages.errors import OnnxExporterError
from fx_onnx.symbolic_helper import parse_args


class Float8(Function):
    """As ScaledE4M3Function of modelopt.torch.quantization.tensor_quant."""

    @staticmethod
    def symbolic(g: Any, x: Any, largest: Any) -> Any:
        """Emits the operators of TensorRT's own domain."""
        scale = g.op("Constant", value_t=torch.tensor(float(largest) / 448).to(torch.float32))
        sizes = x.type().sizes()
        number = g.op("trt::TRT_FP8QuantizeLinear", x, scale).setType(
            x.type().with_dtype(torch.uint8).with_sizes(sizes)
        )
        return g.op("trt::TRT_FP8DequantizeLinear", number, scale).setType(x.type().with_sizes(sizes))

    @staticmethod
    def forward(ctx: Any, x: Tensor, largest: float) -> Tensor:
        """Keeps the shape."""
        scale = 448.0 / largest
        return (x * scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() / scale


class Int4(Function):
    """As FakeTensorQuantFunction of modelopt.torch.quantization.tensor_quant, with blocks."""

    @staticmethod
    @parse_args("v", "t")
    def symbolic(g: Any, x: Any, largest: Any) -> Any:
        """Emits DequantizeLinear of a float weight."""
        scale = g.op("Constant", value_t=largest / 7)
        blocks = x.type().with_sizes(x.type().sizes())
        return g.op("trt::DequantizeLinear", x, scale, axis_i=0, block_size_i=16).setType(blocks)

    @staticmethod
    def forward(ctx: Any, x: Tensor, largest: Tensor) -> Tensor:
        """(rows, block) and (rows, 1) to (rows, block)."""
        return (x / (largest / 7)).round().clamp(-8, 7) * (largest / 7)


class Quantized(nn.Module):
    """Rounds its input to FP8, and its weight to INT4 in blocks of 16, or to FP8."""

    def __init__(self, is_int4: bool) -> None:
        super().__init__()
        self.weight, self.is_int4 = nn.Parameter(torch.randn(8, 32)), is_int4
        self.register_buffer("largest", self.weight.detach().reshape(-1, 16).abs().amax(1, keepdim=True))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 32) to (batch, 8)."""
        if not self.is_int4:
            return Float8.apply(x, 2.0) @ Float8.apply(self.weight, 4.0).T
        return x @ Int4.apply(self.weight.reshape(-1, 16), self.largest).reshape(8, 32).T


@pytest.mark.parametrize("target", [None, "tensorrt"])
@pytest.mark.parametrize(("is_int4", "opset"), [(False, 19), (False, 23), (True, 21), (True, 24)])
def test_standard_operators(is_int4: bool, opset: int, target: str | None) -> None:
    """Each quantizer is one pair, also for values beyond the range."""
    model, rows = Quantized(is_int4).eval(), 2 * torch.randn(4, 32)
    shapes = ({0: "batch"},)
    program = fx_onnx.export(model, (rows,), dynamic_shapes=shapes, opset_version=opset, target=target)
    operators = [node.op_type for node in program.model.graph if not node.domain]
    pairs = 1 if is_int4 else 2
    assert operators.count("QuantizeLinear") == operators.count("DequantizeLinear") == pairs
    assert set(program.model.graph.opset_imports) == {""}
    dtypes = {node.outputs[0].dtype.name for node in program.model.graph if node.op_type == "QuantizeLinear"}
    assert dtypes == ({"INT4"} if is_int4 else {"FLOAT8E4M3FN"})
    more = 2 * torch.randn(7, 32)
    torch.testing.assert_close(program(more)[0], model(more), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("is_int4", "opset", "message"), [(False, 18, "needs opset 19"), (True, 20, "needs opset 21")])
def test_older_opsets(is_int4: bool, opset: int, message: str) -> None:
    with pytest.raises(OnnxExporterError, match=message):
        fx_onnx.export(Quantized(is_int4).eval(), (torch.randn(4, 32),), opset_version=opset)


def test_other_inputs_stay() -> None:
    """A DequantizeLinear of TensorRT's domain whose scales are no constant is no quantizer of Model-Optimizer."""

    class Other(Function):
        @staticmethod
        def symbolic(g: Any, x: Any, scale: Any) -> Any:
            return g.op("trt::DequantizeLinear", x, scale, axis_i=0).setType(x.type())

        @staticmethod
        def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
            return x * scale

    class Module(nn.Module):
        def forward(self, x: Tensor, scale: Tensor) -> Any:
            return Other.apply(x, scale)

    program = fx_onnx.export(Module(), (torch.randn(4, 8), torch.rand(4, 1)), opset_version=21)
    assert [node.domain for node in program.model.graph] == ["trt"]
