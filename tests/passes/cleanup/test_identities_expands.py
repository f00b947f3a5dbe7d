"""Elimination of Expands before nodes that broadcast."""

import pytest
import torch

from fx_onnx.passes.cleanup.identities import eliminate_expands
from tests.passes.checking import check, model, origins


def test_arithmetic() -> None:
    """The other operand has the shape of the result. Another consumer keeps the Expand."""
    program = model("""g (float[1,3] x, float[N,3] y) => (float[N,3] z, float[N,3] u) {
      s = Shape(y)\n a = Expand(x, s)\n z = Add(a, y)\n u = Relu(a)
    }""")
    for node, index in ((program.graph[1], 0),):
        node.outputs[index].shape = program.graph.inputs[1].shape
    check(program, eliminate_expands, [torch.randn(1, 3), torch.randn(4, 3)], ["Shape", "Expand", "Relu", "Add"])
    assert origins(program, "z") == {"%a", "%z"}


def test_both_operands() -> None:
    """Of two Expands to the same shape one stays, because it determines the shape of the result."""
    program = model("""g (float[1,3] x, float[1,3] y) => (float[2,3] z) <int64[2] s = {2,3}> {
      a = Expand(x, s)\n b = Expand(y, s)\n z = Mul(a, b)
    }""")
    check(program, eliminate_expands, [torch.randn(1, 3), torch.randn(1, 3)], ["Expand", "Mul"])


def test_where_and_matmul() -> None:
    """A condition of Where, and the batch axes of MatMul."""
    program = model("""g (bool[1,3] c, float[2,3] x, float[1,4,1] f, float[5,1,6] p) => (float[2,3] y, float[5,4,6] q)
    <int64[2] s = {2,3}, int64[3] t = {5,4,1}, float zero = {0.0}> {
      a = Expand(c, s)\n y = Where(a, x, zero)\n b = Expand(f, t)\n q = MatMul(b, p)
    }""")
    inputs = [torch.tensor([[True, False, True]]), torch.randn(2, 3), torch.randn(1, 4, 1), torch.randn(5, 1, 6)]
    check(program, eliminate_expands, inputs, ["Where", "MatMul"])


@pytest.mark.parametrize("body", ["a = Expand(x, s)\n z = MatMul(a, y)", "a = Expand(x, t)\n z = Add(a, y)"])
def test_left_alone(body: str) -> None:
    """MatMul does not broadcast rows, and an Expand to a higher rank widens the result."""
    program = model(f"""g (float[1,3] x, float[3,3] y) => (float[A,B] z)
    <int64[2] s = {{2,3}}, int64[3] t = {{1,3,3}}> {{
      {body}
    }}""")
    assert not eliminate_expands(program).modified
