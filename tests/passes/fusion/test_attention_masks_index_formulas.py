"""Formulas of the elements of masks."""

import pytest

from fx_onnx.passes.fusion.attention_masks import Formula, Linear, Read, index_formula
from tests.passes.checking import model
from tests.passes.fusion.masks import CAUSAL, CONSTANTS, PADDING, WINDOW

P, S, B = map(Linear.of, ("P", "S", "B"))
QUERY, KEY, TEXT = map(Linear.of, (-2, -1, -4))
AHEAD = P.plus(QUERY).plus(KEY, -1)
"""By how much the place of a query is ahead of that of a key."""

TYPES = "float[B,S,32] q, float[B,2,P,8] pk, int64[B,T] padding, float[B,T] x, int64 n"


def formula(nodes: str, result: str, constants: str = CONSTANTS) -> Formula | None:
    """Returns the formula of a value."""
    graph = model(f"g ({TYPES}) => ({result}) {constants} {{ {nodes} }}").graph
    return index_formula(graph.outputs[0])


def test_a_causal_mask() -> None:
    assert formula(CAUSAL, "causal") == Formula((Linear(1), Linear(1), S, P.plus(S)), frozenset([AHEAD]))


@pytest.mark.parametrize(
    ("comparison", "condition"),
    [
        ("GreaterOrEqual(query, key)", AHEAD),
        ("Greater(query, key)", AHEAD.plus(Linear(-1))),
        ("Less(key, query)", AHEAD.plus(Linear(-1))),
        ("LessOrEqual(query, key)", Linear().plus(AHEAD, -1)),
    ],
)
def test_comparisons(comparison: str, condition: Linear) -> None:
    found = formula(f"{CAUSAL} y = {comparison}", "y")
    assert found is not None
    assert found.element == frozenset([condition])


def test_padding_is_a_read_of_the_input() -> None:
    found = formula(CAUSAL + PADDING + "y = And(causal, token)", "y")
    assert found is not None
    assert found.sizes == (B, Linear(1), S, P.plus(S))
    reads = [each for each in found.element if isinstance(each, Read)]
    assert [(each.value.name, each.index) for each in reads] == [("padding", (TEXT, KEY))]
    assert found.element == {AHEAD, *reads}


def test_a_window() -> None:
    found = formula(CAUSAL + WINDOW + "y = And(near, causal)", "y")
    assert found is not None
    assert found.element == {AHEAD, Linear(2).plus(AHEAD, -1)}


@pytest.mark.parametrize("lowest", ["-3.4028235e38", "-inf"])
def test_a_float_mask(lowest: str) -> None:
    constants = CONSTANTS[:-1] + f", float shown = {{0.0}}, float hidden = {{{lowest}}}>"
    found = formula(f"{CAUSAL} y = Where(causal, shown, hidden)", "y", constants)
    assert found == formula(CAUSAL, "causal")


def test_an_axis_of_size_1_has_index_0() -> None:
    found = formula("y = Range(n1, two, n1)", "y", CONSTANTS[:-1] + ", int64 two = {2}>")
    assert found == Formula((Linear(1),), Linear(1))


def test_squeeze_and_unsqueeze_move_axes() -> None:
    nodes = f"{CAUSAL} a = Unsqueeze(kr, zero)\n c = Squeeze(a, zero)\n y = Unsqueeze(c, last)"
    assert formula(nodes, "y") == Formula((P.plus(S), Linear(1)), Linear.of(-2))


@pytest.mark.parametrize(
    "nodes",
    [
        f"{CAUSAL} y = Or(causal, causal)",  # alternatives are no conjunction
        f"{CAUSAL} y = Not(causal)",
        f"{CAUSAL} y = Where(causal, small, small)",  # it does not hide
        f"{CAUSAL} y = Where(causal, visible, small)",
        f"{CAUSAL} y = Cast<to=6>(causal)",
        "y = Range(n0, n, n1)",  # a size from an input
        f"{CAUSAL} y = Range(n1, p, n)",  # an unknown step
        f"{CAUSAL} {PADDING} y = Cast<to=9>(x)",  # a float input
        f"{CAUSAL} {PADDING} negative = Sub(key6, three)\n other = Concat<axis=-1>(text6, negative)\n"
        " y = GatherND(shown, other)",  # a negative index counts from the end
        f"{CAUSAL} y = Mul(key, query)",
        f"{CAUSAL} other = Shape(x)\n y = Expand(causal, other)",  # other sizes
        f"{CAUSAL} y = Reshape(causal, flat)",  # two long axes
    ],
)
def test_no_formula(nodes: str) -> None:
    constants = CONSTANTS[:-1] + ", float visible = {0.0}, float small = {-1.0}, int64[1] flat = {-1}>"
    assert formula(nodes, "y", constants) is None


def test_sizes_that_may_differ_do_not_broadcast() -> None:
    """A range of P elements against one of P + S elements."""
    nodes = f"{CAUSAL} pr = Range(n0, p, n1)\n y = LessOrEqual(pr, kr)"
    assert formula(nodes, "y") is None
