"""The target qnn: static shapes, its table, and the forms that its compiler takes."""

import pytest
import torch
from torch import nn

from fx_onnx.messages.errors import UnsupportedOperatorError
from fx_onnx.targets.kernel_support import support
from fx_onnx.targets.known_targets import find_target
from tests.exporting import exported, operators
from tests.passes.checking import model

X = torch.ones(2, 3)


def test_a_dynamic_dim_is_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match="the dim n of the input 'x' is dynamic"):
        exported(lambda x: x.relu(), X, target="qnn", dynamic_shapes=({0: "n"},))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("g (float[1,1,1,1,1,2] x) => (float[1,1,1,1,1,2] y) { y = Relu(x) }", "more than 5 axes"),
        ("g (float[2] x) => (float[2] y) { y = Erf(x) }", "no kernel"),
        ("g (double[2] x) => (double[2] y) { y = Relu(x) }", "no kernel for double"),
    ],
)
def test_what_the_compiler_refuses(text: str, reason: str) -> None:
    (missing,) = support(model(text), find_target("qnn")).missing
    assert reason in missing.reason


def test_a_dynamic_dim_is_refused_before_the_compiler() -> None:
    said = exported(nn.Linear(3, 2), X, dynamic_shapes=({0: "rows"},)).supports("qnn")
    assert not said and "the dim rows of the input" in str(said)


def test_what_the_compiler_takes() -> None:
    text = "g (float16[2,3] x, int64[2] i) => (float16[2,3] y) { a = Gather(x, i) y = LayerNormalization(a, a) }"
    assert support(model(text), find_target("qnn")).missing == ()


def test_booleans_are_compared_and_reduced_as_numbers() -> None:
    program = exported(lambda x: ((x > 0) == (x > 1)).all(), X, target="qnn")
    assert program(X)[0].item() is False and program.supports("qnn").missing == ()
    assert {"Cast", "Equal"} <= set(operators(program))


def test_a_weight_with_a_scale_for_each_channel() -> None:
    """Only a convolution reads a DequantizeLinear of several scales."""
    text = """g (float[1,2] x) => (float[1,3] y) <int8[2,3] w = {1, 2, 3, 4, 5, 6}, float[3] s = {0.5, 1, 2}>
    { d = DequantizeLinear<axis=1>(w, s) y = MatMul(x, d) }"""
    program = model(text)
    for row in find_target("qnn").legalizations:
        row(program)
    assert [node.op_type for node in program.graph] == ["Cast", "Mul", "MatMul"]


def test_a_recurrent_layer_of_a_network() -> None:
    x = torch.randn(2, 3, 4)
    program = exported(nn.LSTM(4, 5, batch_first=True), x, target="qnn")
    assert "LSTM" not in operators(program) and "Tanh" in operators(program)
