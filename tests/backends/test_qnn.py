"""The target qnn: static shapes, its table, and the forms that its compiler takes."""

import onnx_ir as ir
import pytest
import torch
from torch import nn

from fx_onnx.messages.errors import UnsupportedOperatorError
from fx_onnx.passes.rewriter import apply
from fx_onnx.targets.kernel_support import support
from fx_onnx.targets.known_targets import find_target
from tests.backends.legalization.test_npu_weights import weight, with_weight
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


def test_a_weight_of_4_bits_in_blocks() -> None:
    """It stays in 4 bits, in an operator of the runtime's own domain, which has 3 axes on the NPU."""
    text = "g (float[2,32] x, int4[32,2] w) => (float[2,2] y) <float[2,2] s = {1, 2, 3, 4}>"
    text += "{ d = DequantizeLinear<axis=0, block_size=16>(w, s) y = MatMul(x, d) }"
    program, target = with_weight(text, weight(ir.DataType.INT4, 32, 2)), find_target("qnn")
    apply(program, target.legalizations)
    assert [node.op_type for node in program.graph] == ["Reshape", "MatMulNBits", "Reshape"]
    assert support(program, target).missing == ()


def test_a_recurrent_layer_of_a_network() -> None:
    x = torch.randn(2, 3, 4)
    program = exported(nn.LSTM(4, 5, batch_first=True), x, target="qnn")
    assert "LSTM" not in operators(program) and "Tanh" in operators(program)
