"""Activations."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fx_onnx
from fx_onnx.passes.legalization.special_functions import (
    legalize_half_softplus,
    legalize_log_softmax,
    legalize_mish,
    legalize_quantized_limits,
    legalize_swish,
    legalize_tanh_gelu,
)
from tests.compare import assert_close
from tests.modules import FunctionModule
from tests.passes.checking import check, model, with_swiglu


def test_mish() -> None:
    x = torch.tensor([-30.0, -1.0, 0.0, 2.0, 90.0])
    check(model("g (float[N] x) => (float[N] y) { y = Mish(x) }"), legalize_mish, [x], ["Softplus", "Tanh", "Mul"])


def test_half_softplus() -> None:
    x = torch.tensor([-8.0, 0.0, 12.0, 100.0, 6e4]).half()
    program = model("g (float16[N] x) => (float16[N] y) { y = Softplus(x) }", opset=18)
    assert legalize_half_softplus(program).modified
    assert [node.op_type for node in program.graph] == ["Cast", "Softplus", "Cast"]
    assert_close(fx_onnx.ONNXProgram(program)(x), F.softplus(x))
    for text, opset in (("float[N]", 18), ("float16[N]", 20)):
        program = model(f"g ({text} x) => ({text} y) {{ y = Softplus(x) }}", opset=opset)
        assert not legalize_half_softplus(program).modified


ORT = tuple(map(int, onnxruntime.__version__.split(".")[:2]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("opset", [24, 25, 26])
def test_silu_matches_eager(opset: int, dtype: torch.dtype) -> None:
    if dtype == torch.float64 and opset > 24 and ORT < (1, 31):
        pytest.skip("ONNX Runtime before 1.31 fuses Sigmoid and Mul of float64 to an operator without a kernel")

    def scaled(x: Tensor) -> Tensor:
        return F.silu(x) + x * torch.sigmoid(1.5 * x)

    x = torch.randn(3, 4).to(dtype)
    program = fx_onnx.export(FunctionModule(scaled).eval(), (x,), opset_version=opset)
    assert_close(program(x), scaled(x))


@with_swiglu
def test_swish_keeps_alpha() -> None:
    swish = "g (float[2,3] x) => (float[2,3] y) { y = Swish<alpha=2.0>(x) }"
    check(model(swish, opset=24), legalize_swish, [torch.randn(2, 3)], ["Swish"])  # ONNX Runtime inlines this one
    swiglu = "g (float[2,3] x, float[2,3] z) => (float[2,3] y) { y = SwiGLU<alpha=2.0>(x, z) }"
    inputs = [torch.randn(2, 3), torch.randn(2, 3)]
    check(model(swiglu, opset=28), legalize_swish, inputs, ["Mul", "Sigmoid", "Mul", "Mul"])
    legalized = legalize_swish(model(swish, opset=25)).model
    assert [node.op_type for node in legalized.graph] == ["Mul", "Sigmoid", "Mul"]


ROWS, WEIGHTS = torch.randn(2, 3, 4), {"w": torch.randn(4, 5), "b": torch.randn(5)}

EXPANDED_GELU = ["MatMul", "Add", "Pow", "Mul", "Add", "Mul", "Tanh", "Add", "Mul", "Mul"]


def biased_gelu(addends: str = "m, b", attributes: str = '<approximate = "tanh">') -> str:
    return f"""g (float[N,3,4] x) => (float[N,3,5] z) {{
        m = MatMul(x, w)\n y = Add({addends})\n z = Gelu{attributes}(y)
    }}"""


@pytest.mark.parametrize("addends", ["m, b", "b, m"])
def test_a_tanh_gelu_after_a_bias(addends: str) -> None:
    check(model(biased_gelu(addends), WEIGHTS), legalize_tanh_gelu, [ROWS], EXPANDED_GELU, 1e-5)


def test_other_forms_of_gelu_stay() -> None:
    """The exact Gelu, and a sum without a bias of one axis."""
    assert not legalize_tanh_gelu(model(biased_gelu(attributes=""), WEIGHTS)).modified
    assert not legalize_tanh_gelu(model(biased_gelu("m, m"), WEIGHTS)).modified
    assert not legalize_tanh_gelu(model(biased_gelu(), {**WEIGHTS, "b": torch.randn(3, 5)})).modified


def test_the_optimizer_of_transformers_keeps_the_approximation(tmp_path: Path) -> None:
    """BiasGelu would differ by 5e-4."""
    optimizer = pytest.importorskip("onnxruntime.transformers.optimizer", reason="it needs packages of its own")
    module = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.GELU("tanh"), torch.nn.Linear(64, 4)).eval()
    x = torch.randn(2, 3, 4) * 2
    fx_onnx.export(module, (x,), tmp_path / "m.onnx", verbose=False, input_names=["x"])
    optimized = optimizer.optimize_model(str(tmp_path / "m.onnx"), "gpt2", num_heads=1, hidden_size=4, opt_level=0)
    operators = [node.op_type for node in optimized.model.graph.node]
    assert "FastGelu" in operators
    session = onnxruntime.InferenceSession(optimized.model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x.numpy()})
    np.testing.assert_allclose(found, module(x).detach().numpy(), atol=2e-5)


def test_the_default_axis_is_written() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    changed = model("g (float[M,N] x) => (float[M,N] y) { y = LogSoftmax(x) }")
    check(changed, legalize_log_softmax, [x], ["LogSoftmax"])
    assert changed.graph.node(0).attributes["axis"].as_int() == -1


def test_another_axis_stays() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    changed = model("g (float[M,N] x) => (float[M,N] y) { y = LogSoftmax<axis=0>(x) }")
    check(changed, legalize_log_softmax, [x], ["LogSoftmax"])
    assert changed.graph.node(0).attributes["axis"].as_int() == 0


@pytest.mark.parametrize("limit", ["Relu(x)", "Clip(x, low)", "Clip(x, low, high)", "Clip(x, , high)"])
@pytest.mark.parametrize("dtype", ["float8e4m3fn", "float8e5m2", "int4", "int8"])
def test_limits_before_quantization(dtype: str, limit: str) -> None:
    """The graph optimizations of the runtime keep them."""
    text = f"""g (float[M,N] x) => (float[M,N] y)
      <float scale = {{0.1}}, {dtype} zero = {{0}}, float low = {{0.0}}, float high = {{0.5}}> {{
      a = {limit}\n b = QuantizeLinear(a, scale, zero)\n y = DequantizeLinear(b, scale, zero) }}"""
    changed = model(text, opset=21)
    assert legalize_quantized_limits(changed).modified == (dtype != "int8")
    x = torch.linspace(-0.7, 0.7, 15).reshape(3, 5)
    low, high = (0.0 if "low" in limit or "Relu" in limit else None), (0.5 if "high" in limit else None)
    session = onnxruntime.InferenceSession(ir.serde.serialize_model(changed).SerializeToString())
    assert_close(torch.from_numpy(session.run(None, {"x": x.numpy()})[0]), x.clamp(low, high), 0.2)
