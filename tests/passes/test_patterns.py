"""The language of patterns: what each form matches and what it does not."""

import logging

import onnx_ir as ir
import pytest
from onnx_ir import Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.patterns import PatternError, parse
from fx_onnx.passes.rewriter import LOGGER_NAME
from fx_onnx.passes.rules import Result, Rule, rule
from tests.passes.checking import model

CONSTANTS = "<float two = {2.0}, float half = {0.5}, float[3] vector = {1.0, 2.0, 3.0}>"


def matches(pattern: str, text: str) -> bool:
    """Returns whether the pattern matches at the node that computes y."""
    found: list[dict[str, object]] = []

    def function(node: ir.Node, f: NodeBuilder) -> Result:
        found.append({"node": node})
        return None

    program = model(f"g (float[N,3] x, float[N,3] z) => (float[N,3] y) {CONSTANTS} {{ {text} }}")
    Rule(function, [pattern], since=0, until=None, where={})(program)
    return bool(found)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("Sigmoid(a)", "y = Sigmoid(x)", True),
        ("Sigmoid(a)", "y = Tanh(x)", False),
        ("a + Sigmoid(a)", "s = Sigmoid(x)\n y = Add(s, x)", True),
        ("a + Sigmoid(a)", "s = Sigmoid(z)\n y = Add(s, x)", False),
        ("_ + Sigmoid(_)", "s = Sigmoid(z)\n y = Add(s, x)", True),
        ("a - Sigmoid(b)", "s = Sigmoid(z)\n y = Sub(s, x)", False),
        ("2.0 * a", "y = Mul(x, two)", True),
        ("2.0 * a", "y = Div(x, half)", True),
        ("2.0 * a", "y = Mul(x, half)", False),
        ("a * a * a", "s = Mul(x, x)\n y = Mul(x, s)", True),
        ("a * a * a", "s = Mul(x, z)\n y = Mul(x, s)", False),
        ("number.k * Tanh(a)", "y = Tanh(x)", False),
        ("Neg(number.k * Tanh(a))", "t = Tanh(x)\n y = Neg(t)", True),
        ("a + const.c", "y = Add(vector, x)", True),
        ("a + number.c", "y = Add(vector, x)", False),
        ("a + weight.w", "y = Add(vector, x)", True),
        ("a + weight.w", "y = Add(x, z)", False),
        ("Sub(weight.w, a)", "y = Sub(x, vector)", False),
        ("Clip(a, None, b)", "y = Clip(x, , two)", True),
        ("Clip(a)", "y = Clip(x, , two)", False),
        ("Clip(a, ...)", "y = Clip(x, , two)", True),
        ("Clip(a, b | None, c)", "y = Clip(x, , two)", True),
        ("Clip(a, const.b | None, c)", "y = Clip(x, half, two)", True),
        ("Max(..., Tanh(a), ...)", "t = Tanh(x)\n y = Max(z, z, t)", True),
        ("Max(..., Tanh(a), ...)", "y = Max(z, z, x)", False),
        ("Neg(number.k * a)", "t = Mul(x, z)\n y = Neg(t)", True),
        ("Concat(*parts, axis=0)", "y = Concat<axis=0>(x, z)", True),
        ("Concat(*parts, axis=1)", "y = Concat<axis=0>(x, z)", False),
        ("Softmax(a, axis=-1)", "y = Softmax(x)", True),
        ("Softmax(a, axis=k)", "y = Softmax<axis=0>(x)", True),
        ("Cast(a, to=FLOAT)", "y = Cast<to=1>(x)", True),
        ("Cast(a, to=DOUBLE)", "y = Cast<to=1>(x)", False),
        ("Tanh(Sigmoid(a) | Neg(a))", "s = Neg(x)\n y = Tanh(s)", True),
        ("Tanh(a) | Sigmoid(a)", "y = Sigmoid(x)", True),
        ("(Tanh | Sigmoid)(a)", "y = Sigmoid(x)", True),
        ("(Tanh | com.microsoft.Gelu)(a)", "y = Sigmoid(x)", False),
        ("Tanh((Neg | Sigmoid)(a))", "s = Sigmoid(x)\n y = Tanh(s)", True),
        ("(Sub | Add)(two, Sigmoid(a))", "s = Sigmoid(x)\n y = Add(s, two)", True),
        ("(Sub | Add)(two, Sigmoid(a))", "s = Sigmoid(x)\n y = Sub(s, two)", False),
        ("Tanh(Split(a, ...)[1])", "s, t = Split<axis=0, num_outputs=2>(x)\n y = Tanh(t)", True),
        ("Tanh(Split(a, ...)[0])", "s, t = Split<axis=0, num_outputs=2>(x)\n y = Tanh(t)", False),
        ("Tanh(Sigmoid(a)) + _", "s = Sigmoid(x)\n t = Tanh(s)\n y = Add(t, s)", False),
        ("Tanh(~Sigmoid(a)) + _", "s = Sigmoid(x)\n t = Tanh(s)\n y = Add(t, s)", True),
        ("Tanh(Sigmoid(a)) + Sigmoid(a)", "s = Sigmoid(x)\n t = Tanh(s)\n y = Add(t, s)", True),
    ],
)
def test_forms(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


@pytest.mark.parametrize("text", ["x +", "[x]", "2.0 * number.n * x", "lambda: 1"])
def test_texts_that_are_no_pattern(text: str) -> None:
    with pytest.raises(PatternError):
        parse(text)


def test_a_pattern_ends_at_a_node() -> None:
    with pytest.raises(PatternError, match="does not end at a node"):
        rule("x")(lambda x: x).roots()


def test_a_condition_on_the_node() -> None:
    change = rule("Relu(x)", where={"node": lambda node: node.outputs[0].name == "y"})(lambda f, x: f.Neg(x))
    program = model("g (float[N,3] x) => (float[N,3] y) { r = Relu(x)\n y = Relu(r) }")
    assert change(program).modified
    assert [node.op_type for node in program.graph] == ["Relu", "Neg"]


@rule("Max(low, Min(x, high))", since=13, where={"low": lambda value: value.shape == ()})
def clip(f: NodeBuilder, x: Value, low: Value, high: Value) -> Result:
    return f.Clip(x, low, high) if high.shape == () else "the upper bound is no scalar"


BOUNDS = "<float low = {0.0}, float high = {1.0}, float[3] highs = {1.0, 2.0, 3.0}>"


def test_a_rule_keeps_the_name_and_says_why_it_declines(caplog: pytest.LogCaptureFixture) -> None:
    program = model(f"g (float[N,3] x) => (float[N,3] y) {BOUNDS} {{ m = Min(high, x)\n y = Max(m, low) }}")
    program.graph[-1].name = "bounded"
    assert clip(program).modified
    (node,) = program.graph
    assert (node.op_type, node.name, node.outputs[0].name) == ("Clip", "bounded", "y")
    program = model(f"g (float[N,3] x) => (float[N,3] y) {BOUNDS} {{ m = Min(highs, x)\n y = Max(m, low) }}")
    with caplog.at_level(logging.DEBUG, LOGGER_NAME):
        assert not clip(program).modified
    assert "clip declines Max" in caplog.text
    assert "the upper bound is no scalar" in caplog.text
    program = model(
        f"g (float[N,3] x) => (float[N,3] y, float[N,3] m) {BOUNDS} {{ m = Min(high, x)\n y = Max(m, low) }}"
    )
    with caplog.at_level(logging.DEBUG, LOGGER_NAME):
        assert not clip(program).modified
    assert "another node reads the Min" in caplog.text


def test_nodes_of_a_declined_result_are_removed() -> None:
    def twice(f: NodeBuilder, x: Value) -> Result:
        f.Add(f.Tanh(x), f.Tanh(x))
        return "it is not wanted"

    program = model("g (float[N,3] x) => (float[N,3] y) { y = Sigmoid(x) }")
    assert not Rule(twice, ["Sigmoid(x)"], since=0, until=None, where={})(program).modified
    assert [node.op_type for node in program.graph] == ["Sigmoid"]


def test_each_result_of_a_node_without_a_name_gets_a_node_of_its_own() -> None:
    def parts(f: NodeBuilder, x: Value) -> Result:
        return [f.Slice(x, [0], [1], [1]), None, f.Slice(x, [2], [3], [1])]

    program = model("g (float[N,3] x) => (float[N,1] a, float[N,1] c) { a, b, c = Split<axis=1, num_outputs=3>(x) }")
    Rule(parts, ["Split(x)"], since=0, until=None, where={})(program)
    first, second = program.graph
    assert (first.op_type, first.outputs[0].name, second.outputs[0].name) == ("Slice", "a", "c")
    assert first.name != second.name
