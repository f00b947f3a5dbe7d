"""Dead-code elimination."""

import torch

from fx_onnx.passes.cleanup.redundant_nodes import EliminateDeadCode
from tests.passes.checking import check, model


def test_nodes_weights_and_inputs() -> None:
    """A chain without consumers is removed with its weight; graph inputs stay."""
    program = model("""g (float[N,3] x, float[N] unused) => (float[N,3] y) {
      y = Relu(x)\n a = Add(x, w)\n b = Neg(a)
    }""", {"w": torch.randn(3)})  # fmt: skip
    check(program, EliminateDeadCode(), [torch.randn(2, 3), torch.randn(2)], ["Relu"])
    assert not program.graph.initializers


def test_subgraphs() -> None:
    """A dead node in a branch and a dead If with its producers are removed; a weight that a branch reads stays."""
    program = model("""g (float[N,3] x, bool c) => (float[N,3] y) {
      only = Neg(x)
      dead = If(c)<then_branch = a () => (float[N,3] u) { u = Relu(only) },
                   else_branch = b () => (float[N,3] v) { v = Relu(only) }>
      y = If(c)<then_branch = d () => (float[N,3] p) { z = Neg(x)\n p = Add(x, w) },
                else_branch = e () => (float[N,3] q) { q = Relu(x) }>
    }""", {"w": torch.randn(3)})  # fmt: skip
    for side in (True, False):
        check(program, EliminateDeadCode(), [torch.randn(2, 3), torch.tensor(side)], ["If", "Add", "Relu"])
    assert list(program.graph.initializers) == ["w"]


def test_optional_results() -> None:
    """Unused indices of a MaxPool and moments of a LayerNormalization are removed; a result before a used one stays."""
    program = model("""g (float[N,3,4,4] x) => (float[N,3,2,2] y, float[N,3,4,4] z, float[N,3,4,4] u,
                                                float[N,3,4,1] v) {
      y, i = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)\n z, m, s = LayerNormalization(x, w)
      u, n, v = LayerNormalization(x, w)
    }""", {"w": torch.randn(4)})  # fmt: skip
    check(
        program, EliminateDeadCode(), [torch.randn(2, 3, 4, 4)], ["MaxPool", "LayerNormalization", "LayerNormalization"]
    )
    assert [len(node.outputs) for node in program.graph] == [1, 1, 3]


def test_functions() -> None:
    """A function without calls is removed, and so are the dead nodes of a called one."""
    program = model("""g (float[N] x) => (float[N] y) { y = local.f(x) }
    <domain: "local", opset_import: ["" : 20]>
    f (x) => (y) { a = Neg(x)\n y = Relu(x) }
    <domain: "local", opset_import: ["" : 20]>
    h (x) => (y) { y = Relu(x) }""")
    check(program, EliminateDeadCode(), [torch.randn(2)], ["f"])
    [function] = program.functions.values()
    assert [node.op_type for node in function] == ["Relu"]


def test_an_attention_with_a_past_returns_the_present() -> None:
    """ONNX requires the present keys and values of an Attention that has past ones, even if nothing reads them."""
    program = model("""g (float[1,2,1,4] q, float[1,2,3,4] k) => (float[1,2,1,4] y) {
      y, a, b = Attention(q, q, q, , k, k)
    }""", opset=23)  # fmt: skip
    check(program, EliminateDeadCode(), [torch.randn(1, 2, 1, 4), torch.randn(1, 2, 3, 4)], ["Attention"])
    assert len(program.graph[0].outputs) == 3
