"""Activations, comparisons and other operators of single elements."""

import math
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fx_onnx
from fx_onnx.passes.legalization.elementwise import (
    legalize_half_softplus,
    legalize_less,
    legalize_log_softmax,
    legalize_mish,
    legalize_predicates,
    legalize_round,
    legalize_swish,
    legalize_tanh_gelu,
    legalize_where,
)
from tests.compare import assert_close
from tests.modules import FunctionModule
from tests.passes.checking import check, model

# ---------------------------------------------------------------- Mish


def test_mish() -> None:
    x = torch.tensor([-30.0, -1.0, 0.0, 2.0, 90.0])
    check(model("g (float[N] x) => (float[N] y) { y = Mish(x) }"), legalize_mish, [x], ["Softplus", "Tanh", "Mul"])


# ---------------------------------------------------------------- Softplus


def test_half_softplus() -> None:
    x = torch.tensor([-8.0, 0.0, 12.0, 100.0, 6e4]).half()
    program = model("g (float16[N] x) => (float16[N] y) { y = Softplus(x) }", opset=18)
    assert legalize_half_softplus(program).modified
    assert [node.op_type for node in program.graph] == ["Cast", "Softplus", "Cast"]
    assert_close(fx_onnx.ONNXProgram(program)(x), F.softplus(x))
    for text, opset in (("float[N]", 18), ("float16[N]", 20)):
        program = model(f"g ({text} x) => ({text} y) {{ y = Softplus(x) }}", opset=opset)
        assert not legalize_half_softplus(program).modified


# ---------------------------------------------------------------- Swish


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


def test_swish_keeps_alpha() -> None:
    swish = "g (float[2,3] x) => (float[2,3] y) { y = Swish<alpha=2.0>(x) }"
    check(model(swish, opset=24), legalize_swish, [torch.randn(2, 3)], ["Swish"])  # ONNX Runtime inlines this one
    swiglu = "g (float[2,3] x, float[2,3] z) => (float[2,3] y) { y = SwiGLU<alpha=2.0>(x, z) }"
    inputs = [torch.randn(2, 3), torch.randn(2, 3)]
    check(model(swiglu, opset=28), legalize_swish, inputs, ["Mul", "Sigmoid", "Mul", "Mul"])
    legalized = legalize_swish(model(swish, opset=25)).model
    assert [node.op_type for node in legalized.graph] == ["Mul", "Sigmoid", "Mul"]


# ---------------------------------------------------------------- tanh Gelu after a bias


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


# ---------------------------------------------------------------- LogSoftmax


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


# ---------------------------------------------------------------- Round


def test_round_of_halves_and_large_numbers() -> None:
    x = torch.tensor(
        [0.5, 1.5, 2.5, -0.5, -1.5, 3.4, -3.6, 2.0**22 + 0.5, 2.0**23 + 1, 3e38, math.inf, -math.inf, math.nan]
    )
    expected = ["Abs", "Add", "Sub", "Sign", "Mul", "Greater", "Where"]
    check(model("g (float[N] x) => (float[N] y) { y = Round(x) }"), legalize_round, [x], expected, tolerance=0)


def test_round_of_float16_stays() -> None:
    assert not legalize_round(model("g (float16[N] x) => (float16[N] y) { y = Round(x) }")).modified


# ---------------------------------------------------------------- Less


NEGATIVE = torch.tensor([[-3.0, -1.0, float("nan")], [0.0, 2.0, float("-inf")]])


def test_less_of_floats() -> None:
    text = "g (float[M,N] x) => (bool[M,N] y) <float c = {-1.0}> { y = Less(x, c) }"
    check(model(text), legalize_less, [NEGATIVE], ["Greater"])


def test_less_of_integers_stays() -> None:
    text = "g (int64[M,N] x) => (bool[M,N] y) <int64 c = {-1}> { y = Less(x, c) }"
    check(model(text), legalize_less, [torch.tensor([[-3, -1, 0]])], ["Less"])


# ---------------------------------------------------------------- predicates


SPECIAL = torch.tensor([0.0, -0.0, -2.5, 0.25, math.nan, math.inf, -math.inf])


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("IsNaN(x)", ["GreaterOrEqual", "GreaterOrEqual", "Or", "Not"]),
        ("IsInf(x)", ["Abs", "Equal"]),
        ("IsInf<detect_negative=0>(x)", ["Equal"]),
        ("IsInf<detect_positive=0>(x)", ["Equal"]),
        ("IsInf<detect_positive=0, detect_negative=0>(x)", ["IsInf"]),
        ("Cast<to=9>(x)", ["Equal", "Not"]),
    ],
)
def test_a_predicate_of_floats(predicate: str, expected: list[str]) -> None:
    check(model(f"g (float[N] x) => (bool[N] y) {{ y = {predicate} }}"), legalize_predicates, [SPECIAL], expected)


def test_integers_and_booleans() -> None:
    """A Cast of integers to bool is replaced; a Cast of booleans, and one to numbers, stay."""
    text = "g (int64[N] x) => (int64[N] y) { a = Cast<to=9>(x)\n b = Cast<to=9>(a)\n y = Cast<to=7>(b) }"
    check(model(text), legalize_predicates, [torch.tensor([-3, 0, 2])], ["Equal", "Not", "Cast", "Cast"])


# ---------------------------------------------------------------- Where


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ("x", "row", ["Not", "Where"]),
        ("x", "column", ["Not", "Where"]),
        ("row", "column", ["Shape", "Expand", "Where"]),
        ("column", "row", ["Shape", "Expand", "Where"]),
        ("x", "one", ["Where"]),
        ("one", "row", ["Where"]),
        ("row", "x", ["Where"]),
    ],
)
def test_where(x: str, y: str, expected: list[str]) -> None:
    constants = "float[4] row = {1.0, 2.0, 3.0, 4.0}, float[3,1] column = {5.0, 6.0, 7.0}, float one = {9.0}"
    text = f"g (float[3,4] x, bool[3,4] c) => (float[3,4] y) <{constants}> {{ y = Where(c, {x}, {y}) }}"
    check(model(text), legalize_where, [torch.randn(3, 4), torch.rand(3, 4) > 0.5], expected)
