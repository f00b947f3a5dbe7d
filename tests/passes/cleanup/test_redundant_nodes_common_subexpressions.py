"""Common-subexpression elimination."""

import torch

from fx_onnx.passes.cleanup.redundant_nodes import EliminateCommonSubexpressions
from tests.passes.checking import check, model, origins


def test_equal_nodes_are_merged() -> None:
    """Chains of equal nodes are merged. Attributes are compared, and -0.0 differs from 0.0."""
    program = model("""g (float[N,3] x) => (float[N,3] y, float[N,3] z) {
      a = Relu(x)\n b = Relu(x)\n c = Neg(a)\n d = Neg(b)\n y = Add(c, d)
      e = LeakyRelu<alpha=0.0>(x)\n f = LeakyRelu<alpha=-0.0>(x)\n z = Add(e, f)
    }""")
    operators = ["Relu", "Neg", "Add", "LeakyRelu", "LeakyRelu", "Add"]
    check(program, EliminateCommonSubexpressions(), [torch.randn(2, 3)], operators)
    assert origins(program, "a") == {"%a", "%b"}


def test_outputs_keep_their_nodes() -> None:
    """A node stays if the graph returns its result."""
    program = model("""g (float[N] x) => (float[N] y, float[N] z, float[N] u) {
      y = Relu(x)\n z = Relu(x)\n a = Relu(x)\n u = Neg(a)
    }""")
    check(program, EliminateCommonSubexpressions(), [torch.randn(2)], ["Relu", "Relu", "Neg"])


def test_subgraphs() -> None:
    """Duplicates are found within a branch, not across branches."""
    program = model("""g (float[N] x, bool c) => (float[N] y) {
      y = If(c)<then_branch = a () => (float[N] u) { p = Relu(x)\n q = Relu(x)\n u = Add(p, q) },
                else_branch = b () => (float[N] v) { r = Relu(x)\n v = Neg(r) }>
    }""")
    for side in (True, False):
        check(
            program,
            EliminateCommonSubexpressions(),
            [torch.randn(2), torch.tensor(side)],
            ["If", "Relu", "Add", "Relu", "Neg"],
        )


def test_random_nodes_stay() -> None:
    """Two random draws differ, and two nodes of an unknown domain may differ."""
    program = model("""g (float[N] x) => (float[N] y, float[N] z) {
      a = RandomNormalLike(x)\n b = RandomNormalLike(x)\n y = Sub(a, b)
      c = local.f(x)\n d = local.f(x)\n z = Sub(c, d)
    }
    <domain: "local", opset_import: ["" : 20]>
    f (x) => (y) { y = Relu(x) }""")
    assert not EliminateCommonSubexpressions()(program).modified


def test_tensors_in_attributes() -> None:
    """Constants are equal by dtype, shape and bytes."""
    program = model("""g (float[2] x) => (float[2] y, float[2] z) {
      a = Constant<value = float[1] {0.0}>()\n b = Constant<value = float[1] {0.0}>()
      c = Constant<value = float[1] {-0.0}>()\n d = Add(x, a)\n e = Add(x, b)\n y = Add(d, e)\n z = Add(x, c)
    }""")
    check(program, EliminateCommonSubexpressions(), [torch.randn(2)], ["Constant", "Constant", "Add", "Add", "Add"])


def test_each_consumer_keeps_its_dequantize_linear() -> None:
    """PT2E writes a DequantizeLinear for each consumer, and runtimes match this form."""
    program = model("""g (float[N] x) => (float[N] y) <float s = {0.5}> {
      q = QuantizeLinear(x, s)\n a = DequantizeLinear(q, s)\n b = DequantizeLinear(q, s)\n c = Relu(a)\n y = Add(b, c)
    }""")
    kept = ["QuantizeLinear", "DequantizeLinear", "DequantizeLinear", "Relu", "Add"]
    check(program, EliminateCommonSubexpressions(), [torch.randn(3)], kept)


def test_optional_results_are_compared() -> None:
    """A node without an optional result cannot replace a node that has it."""
    program = model("""g (float[2,4] x) => (float[2,4] y, float[2,1] z) {
      a, , b = LayerNormalization(x, w)\n c, d, e = LayerNormalization(x, w)\n f = Add(a, c)\n y = Add(f, b)
      z = Add(d, e)
    }""", {"w": torch.randn(4)})  # fmt: skip
    operators = ["LayerNormalization", "LayerNormalization", "Add", "Add", "Add"]
    check(program, EliminateCommonSubexpressions(), [torch.randn(2, 4)], operators)
