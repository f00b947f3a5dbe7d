"""What both branches compute alike from their results stands once behind the If."""

from __future__ import annotations

from typing import Any

import onnx.parser
import onnx_ir as ir
import pytest

from fx_onnx.data_branches.shared_tail import shared_tail


def tail(first: str, second: str) -> list[str]:
    """Returns the operators that two branches share at their ends, the last first."""
    text = f"""<ir_version: 10, opset_import: ["": 18]>
    g (float[2] x, bool c) => (float[2] y) <float[2] w = {{1, 2}}, float[2] v = {{3, 4}}> {{ y = If(c) <
      then_branch = t () => (float[2] r) {{ {first} }}, else_branch = e () => (float[2] s) {{ {second} }}> }}"""
    model = ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))
    bodies: list[Any] = [each.as_graph() for each in model.graph[0].attributes.values()]
    results = [(bodies[0].outputs[0], bodies[1].outputs[0])]
    for body in bodies:
        body.outputs.clear()
    return [node.op_type for node in shared_tail(bodies, results)]


@pytest.mark.parametrize(
    ("first", "second", "operators"),
    [
        ("a = Neg(x) b = Exp(a) r = Relu(b)", "a = Abs(x) b = Exp(a) s = Relu(b)", ["Relu", "Exp"]),
        ("a = Neg(x) r = Add(a, x)", "a = Abs(x) s = Add(a, x)", ["Add"]),
        ("a = Neg(x) r = Add(a, w)", "a = Abs(x) s = Add(a, w)", ["Add"]),
        ("a = Neg(x) r = Add(a, w)", "a = Abs(x) s = Add(a, v)", []),  # another weight
        ("a = Neg(x) r = Elu<alpha = 1.0>(a)", "a = Abs(x) s = Elu<alpha = 2.0>(a)", []),
        ("a = Neg(x) b = Exp(a) r = Add(a, b)", "a = Neg(x) b = Exp(a) s = Add(b, a)", ["Add"]),  # no node is two
        ("a = Neg(x) b = Exp(a) r = Mul(a, b)", "a = Abs(x) b = Exp(a) s = Mul(a, b)", ["Mul", "Exp"]),
        ("a = Neg(x) b = Exp(a) d = Log(b) r = Mul(d, b)", "a = Neg(x) b = Exp(x) s = Mul(b, b)", ["Mul"]),
        ("r = Relu(x)", "a = Neg(x) s = Relu(a)", ["Relu"]),
    ],
)
def test_ends(first: str, second: str, operators: list[str]) -> None:
    assert tail(first, second) == operators


INNER = """{r} = If(c) <then_branch = p () => (float[2] {m}1) {{ {m}1 = Exp({a}) }},
  else_branch = q () => (float[2] {m}2) {{ {m}2 = Abs({a}) }}>"""


def test_an_inner_if_is_shared() -> None:
    first = "a = Neg(x) " + INNER.format(r="r", m="m", a="a")
    second = "b = Sqrt(x) " + INNER.format(r="s", m="n", a="b")
    assert tail(first, second) == ["If"]
