"""Canonicalization of products with a reciprocal."""

import torch

from fx_onnx.passes.cleanup.reciprocals import CanonicalizeReciprocals
from tests.passes.checking import check, model, origins


def test_quotient() -> None:
    """The Reciprocal may be either operand."""
    program = model("""g (float[N,3] x, float[N,1] v) => (float[N,3] y, float[N,3] z) {
      s = Sqrt(v)\n a = Reciprocal(s)\n y = Mul(x, a)\n b = Reciprocal(v)\n z = Mul(b, x)
    }""")
    inputs = [torch.randn(4, 3), torch.rand(4, 1) + 0.1]
    check(program, CanonicalizeReciprocals(), inputs, ["Sqrt", "Div", "Div"])
    assert origins(program, "y") == {"%a", "%y"}


def test_shared_reciprocal_stays() -> None:
    """One Reciprocal and several products are cheaper than several quotients."""
    program = model("""g (float[N,3] x, float[N,1] v) => (float[N,3] y, float[N,3] z) {
      a = Reciprocal(v)\n y = Mul(x, a)\n b = Neg(x)\n z = Mul(b, a)
    }""")
    assert not CanonicalizeReciprocals()(program).modified
