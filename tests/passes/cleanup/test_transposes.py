"""Merging of consecutive Transposes."""

import torch

from fx_onnx.passes.cleanup.transposes import MergeTransposes
from tests.passes.checking import check, model, origins


def test_merged() -> None:
    """Two permutations are composed."""
    program = model("""g (float[N,3,4] x) => (float[4,N,3] y) {
      a = Transpose<perm=[1,2,0]>(x)\n y = Transpose<perm=[1,2,0]>(a)
    }""")
    check(program, MergeTransposes(), [torch.randn(2, 3, 4)], ["Transpose"])
    assert origins(program, "y") == {"%a", "%y"}


def test_cancelled() -> None:
    """A permutation and its inverse cancel, also the default one. Another consumer keeps the first Transpose."""
    program = model("""g (float[N,3] x) => (float[N,3] y, float[3,N] z) {
      a = Transpose(x)\n b = Transpose<perm=[1,0]>(a)\n y = Relu(b)\n z = Relu(a)
    }""")
    check(program, MergeTransposes(), [torch.randn(2, 3)], ["Transpose", "Relu", "Relu"])


def test_identity_permutation() -> None:
    """A Transpose with the identity permutation is removed."""
    program = model("g (float[N,3] x) => (float[N,3] y) { a = Transpose<perm=[0,1]>(x)\n y = Relu(a) }")
    check(program, MergeTransposes(), [torch.randn(2, 3)], ["Relu"])


def test_an_output_is_not_replaced_by_an_input() -> None:
    """One Transpose stays, because a graph output cannot be a graph input."""
    program = model("g (float[N,3] x) => (float[N,3] y) { a = Transpose(x)\n y = Transpose(a) }")
    check(program, MergeTransposes(), [torch.randn(2, 3)], ["Transpose"])
