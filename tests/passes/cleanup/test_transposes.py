"""Transposes of Transposes."""

import torch

from fx_onnx.passes.cleanup.transposes import MergeTransposes
from tests.passes.checking import check, model, origins


def test_merged() -> None:
    """Two orders become one."""
    program = model("""g (float[N,3,4] x) => (float[4,N,3] y) {
      a = Transpose<perm=[1,2,0]>(x)\n y = Transpose<perm=[1,2,0]>(a)
    }""")
    check(program, MergeTransposes(), [torch.randn(2, 3, 4)], ["Transpose"])
    assert origins(program, "y") == {"%a", "%y"}


def test_cancelled() -> None:
    """An order and its inverse vanish, also the default order; the other user of the first keeps it."""
    program = model("""g (float[N,3] x) => (float[N,3] y, float[3,N] z) {
      a = Transpose(x)\n b = Transpose<perm=[1,0]>(a)\n y = Relu(b)\n z = Relu(a)
    }""")
    check(program, MergeTransposes(), [torch.randn(2, 3)], ["Transpose", "Relu", "Relu"])


def test_same_order() -> None:
    """A Transpose that moves nothing."""
    program = model("g (float[N,3] x) => (float[N,3] y) { a = Transpose<perm=[0,1]>(x)\n y = Relu(a) }")
    check(program, MergeTransposes(), [torch.randn(2, 3)], ["Relu"])


def test_output_that_is_an_input_keeps_a_node() -> None:
    """A graph output cannot be a graph input: one Transpose stays."""
    program = model("g (float[N,3] x) => (float[N,3] y) { a = Transpose(x)\n y = Transpose(a) }")
    check(program, MergeTransposes(), [torch.randn(2, 3)], ["Transpose"])
