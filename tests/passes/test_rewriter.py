"""The walk that rewrites share, and the log of patterns that decline."""

import logging

import pytest
import torch

from fx_onnx.passes.cleanup.identities import eliminate_identities, merge_casts
from fx_onnx.passes.cleanup.redundant_nodes import EliminateDeadCode
from fx_onnx.passes.optimize import PASSES
from fx_onnx.passes.rewriter import LOGGER_NAME, NodeChange, apply, count_nodes, walk
from tests.models.registry import CASES
from tests.passes.checking import check, model


def test_rewrites_see_each_others_results() -> None:
    """Two Casts become neighbours only after the Identity between them is eliminated."""
    program = model("""g (float[N] x) => (float[N] y) <double one = {1.0}> {
      a = Cast<to=11>(x)\n b = Identity(a)\n c = Cast<to=1>(b)\n y = Neg(c)
    }""")
    check(program, lambda each: walk(each, [merge_casts, eliminate_identities]), [torch.randn(2)], ["Neg"])


def test_nodes_of_a_function_that_refer_to_its_attributes_stay() -> None:
    """A Cast whose target dtype is an attribute of the function stays."""
    program = model("""g (float[N] x) => (float[N] y) { y = local.f<kind=1>(x) }
    <domain: "local", opset_import: ["" : 20]>
    f <kind> (x) => (y) { a = Identity(x)\n b = Cast<to: int = @kind>(a)\n y = Cast<to: int = @kind>(b) }""")
    check(program, lambda each: walk(each, [merge_casts, eliminate_identities]), [torch.randn(2)], ["f"])
    [function] = program.functions.values()
    assert [node.op_type for node in function] == ["Cast", "Cast"]


def test_other_domains_are_ignored() -> None:
    """A custom operator may share its name with an ONNX operator."""
    program = model("""g (float[N] x) => (float[N] y) { a = local.Identity(x)\n y = Neg(a) }
    <domain: "local", opset_import: ["" : 20]>
    Identity (x) => (y) { y = Relu(x) }""")
    check(program, lambda each: walk(each, [eliminate_identities]), [torch.randn(2)], ["Identity", "Neg"])


def test_consecutive_rewrites_share_a_walk() -> None:
    """Consecutive rewrites see each other's results; a pass of another kind between them separates their walks."""
    text = """g (float[N] x) => (float[N] y) <double one = {1.0}> {
      a = Cast<to=11>(x)\n b = Identity(a)\n c = Cast<to=1>(b)\n y = Neg(c)
    }"""
    check(model(text), lambda each: apply(each, [merge_casts, eliminate_identities]), [torch.randn(2)], ["Neg"])
    separated = [merge_casts, EliminateDeadCode(), eliminate_identities]
    check(model(text), lambda each: apply(each, separated), [torch.randn(2)], ["Cast", "Cast", "Neg"])


TEXT = """g (float[N] x) => (float[N] y, float[N] z) {
  a = Cast<to=10>(x)\n y = Cast<to=1>(a)\n z = Neg(y)
}"""


def test_a_decline_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The record names the pass, the node and the reason."""
    with caplog.at_level(logging.DEBUG, logger=LOGGER_NAME):
        assert not merge_casts(model(TEXT)).modified
    [record] = [record for record in caplog.records if record.name == LOGGER_NAME]
    assert record.levelno == logging.DEBUG
    assert (
        record.getMessage() == "merge_casts declines Cast y: the first Cast, from FLOAT to FLOAT16, loses information"
    )


def test_a_decline_formats_nothing_when_the_log_is_off(caplog: pytest.LogCaptureFixture) -> None:
    """Only the level is checked, so that declining costs almost nothing."""

    class Unprintable:
        def __str__(self) -> str:
            raise AssertionError("formatted")

    node = model(TEXT).graph[1]
    with caplog.at_level(logging.INFO, logger=LOGGER_NAME):
        assert merge_casts.declines(node, "of %s", Unprintable()) is False
    assert not caplog.records


def test_an_unnamed_node_is_logged_by_its_result(caplog: pytest.LogCaptureFixture) -> None:
    """Models of other exporters need not name their nodes."""
    node = model(TEXT).graph[1]
    node.name = None
    with caplog.at_level(logging.DEBUG, logger=LOGGER_NAME):
        merge_casts.declines(node, "it is a test")
    assert caplog.records[-1].getMessage() == "merge_casts declines Cast y: it is a test"


@pytest.mark.parametrize("name", ["bert", "llama", "swin", "mobilenet_v3"])
def test_the_changes_of_all_passes_add_up(name: str) -> None:
    """The counts of the passes explain how the number of nodes of the model changed."""
    case = next(each for each in CASES if each.name == name)
    exported = case.export(optimize=False)
    before, changes = count_nodes(exported.model), dict[str, NodeChange]()
    apply(exported.model, PASSES, changes)
    assert sum(change.nodes for change in changes.values()) == count_nodes(exported.model) - before
    assert all(change.applied for change in changes.values())


def test_the_nodes_of_a_removed_body_count() -> None:
    program = model("""g (float[N] x, bool c) => (float[N] y) {
      unused = If(c) <then_branch = t () => (float[N] a) { b = Neg(x)\n a = Neg(b) }, else_branch = e () => (float[N] d)
        { d = Neg(x) }>
      r = Identity(x)\n y = Neg(r) }""")
    before, changes = count_nodes(program), dict[str, NodeChange]()
    apply(program, [eliminate_identities, EliminateDeadCode()], changes)
    assert (before, count_nodes(program)) == (6, 1)
    assert {name: (change.applied, change.nodes) for name, change in changes.items()} == {
        "eliminate_identities": (1, -1),
        "eliminate_dead_code": (1, -4),
    }
