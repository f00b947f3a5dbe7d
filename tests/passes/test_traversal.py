"""Iteration over nodes and values, subgraphs included."""

from fx_onnx.passes.traversal import (
    all_graphs,
    all_initializers,
    all_nodes,
    all_values,
    subgraphs,
    without_new_unread,
)
from tests.passes.checking import model

TEXT = """g (float[N] x, bool c) => (float[N] y) <float[1] w = {1.0}> {
  r = Abs(x)
  y = If(c)<
    then_branch = a () => (float[N] u) { u = If(c)<
      then_branch = d () => (float[N] p) { p = Neg(r) }, else_branch = e () => (float[N] q) { q = Exp(r) }> },
    else_branch = b () => (float[N] v) { v = Add(r, w) }>
}"""


def test_all_nodes() -> None:
    """A node comes before the nodes of its subgraphs, these before the next node."""
    assert [node.op_type for node in all_nodes(model(TEXT).graph)] == ["Abs", "If", "If", "Neg", "Exp", "Add"]


def test_all_values() -> None:
    """Inputs, initializers and results, those of subgraphs included."""
    assert [value.name for value in all_values(model(TEXT).graph)] == ["x", "c", "w", "r", "y", "u", "p", "q", "v"]


def test_all_graphs() -> None:
    """The graph itself is first, then its subgraphs in the order of the nodes; each is followed by its own."""
    assert [graph.name for graph in all_graphs(model(TEXT).graph)] == ["g", "a", "d", "e", "b"]


def test_subgraphs() -> None:
    """Only a control-flow node has subgraphs."""
    absolute, branch = model(TEXT).graph
    assert [graph.name for graph in subgraphs(branch)] == ["a", "b"]
    assert not subgraphs(absolute)


def test_functions() -> None:
    """A local function is traversed like a graph; it has no initializers."""
    program = model("""g (float[N] x) => (float[N] y) { y = local.f(x) }
    <domain: "local", opset_import: ["" : 20]>
    f (x) => (y) { a = Neg(x)\n y = Relu(a) }""")
    [function] = program.functions.values()
    assert [node.op_type for node in all_nodes(function)] == ["Neg", "Relu"]
    assert [value.name for value in all_values(function)] == ["x", "a", "y"]


def test_without_new_unread() -> None:
    """What a rewrite leaves unread is removed, in subgraphs too. Outputs, inputs and what was unread before stay."""
    text = """g (float[1] x, bool c, float[1] i) => (float[1] y, float[1] o)
      <float[1] unread = {1.0}, float[1] read = {2.0}, float[1] o = {3.0}, float[1] i = {4.0}> {
      z = Add(x, read)
      t = Add(z, i)
      y = If(c)<then_branch = a () => (float[1] u) <float[1] inner = {5.0}> { u = Add(t, inner) },
                else_branch = b () => (float[1] v) { v = Add(t, o) }>
    }"""
    graph = model(text).graph
    with without_new_unread(graph):
        for node in all_nodes(graph):
            if node.op_type == "Add":
                node.replace_input_with(1, node.inputs[0])
    assert sorted(str(value.name) for value in all_initializers(graph)) == ["i", "o", "unread"]
