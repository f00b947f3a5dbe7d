"""Names of emitted nodes: after the FX node, unique in the model, counted within the FX node."""

from fx_onnx.translation.node_emitter import ScopedNames


def test_fresh_names_count_within_the_fx_node() -> None:
    names = ScopedNames()
    assert names.fresh("Add") == "Add_0"
    names.enter("relu", {"key": "text"})
    assert [names.fresh("Add"), names.fresh("Mul")] == ["relu.Add_0", "relu.Mul_1"]
    names.enter("other", {})
    assert names.fresh("Add") == "other.Add_0"
    names.enter("relu", {})
    assert names.fresh("Add") == "relu.Add_2"


def test_a_nested_graph_shares_the_counters() -> None:
    outer = ScopedNames()
    outer.enter("loop", {"key": "text"})
    inner = ScopedNames(outer)
    assert (inner.scope, inner.metadata) == ("loop", {"key": "text"})
    assert [outer.fresh("Add"), inner.fresh("Add"), outer.fresh("Add")] == ["loop.Add_0", "loop.Add_1", "loop.Add_2"]
    assert [outer.unique("x"), inner.unique("x")] == ["x", "x_1"]
    inner.enter("body", {})
    assert outer.scope == "loop"
