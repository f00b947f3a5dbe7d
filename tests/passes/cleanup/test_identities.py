"""Elimination of nodes whose result equals one of their inputs."""

import pytest
import torch

from fx_onnx.passes.cleanup.identities import EliminateIdentities
from tests.passes.checking import check, model

SPECIAL = torch.tensor([[0.0, -0.0, 1.5], [float("inf"), float("nan"), -2.0]])


@pytest.mark.parametrize(
    "node",
    ["Identity(r)", "Concat<axis=0>(r)", "Max(r)", "Sum(r)", "Mul(r, one)", "Mul(ones, r)", "Div(r, one)",
     "Sub(r, zero)", "Add(r, negative)", "Pow(r, one)", "Expand(r, shape)", "Tile(r, ones64)", "Pad(r, zeros64)",
     "Slice(r, zero64, large, zero64)", "Split<num_outputs=1>(r)"],
)  # fmt: skip
def test_eliminated(node: str) -> None:
    """A neutral node is eliminated; signed zeros, infinities and NaN keep their values."""
    program = model(f"""g (float[2,3] x) => (float[2,3] y)
    <float one = {{1.0}}, float[3] ones = {{1.0,1.0,1.0}}, float zero = {{0.0}}, float negative = {{-0.0}},
     int64[2] shape = {{2,3}}, int64[2] ones64 = {{1,1}}, int64[4] zeros64 = {{0,0,0,0}}, int64[1] zero64 = {{0}},
     int64[1] large = {{1000}}> {{
      r = Abs(x)\n a = {node}\n y = Neg(a)
    }}""")
    result = check(program, EliminateIdentities(), [SPECIAL], ["Abs", "Neg"])
    assert result.graph[1].inputs[0] is result.graph[0].outputs[0]


def test_empty_inputs_of_a_concat() -> None:
    """The rest after a rotation of all features is empty."""
    program = model("""g (float[2,3] x, float[2,0] e) => (float[2,3] y, float[2,6] z, float[2,0] w) {
      r = Abs(x)\n a = Concat<axis=-1>(r, e)\n y = Neg(a)
      z = Concat<axis=1>(e, r, e, r)\n w = Concat<axis=1>(e, e)
    }""")
    inputs = [SPECIAL, torch.zeros(2, 0)]
    result = check(program, EliminateIdentities(), inputs, ["Abs", "Concat", "Concat", "Neg"])
    assert [len(node.inputs) for node in result.graph if node.op_type == "Concat"] == [2, 2]


@pytest.mark.parametrize(
    "node",
    ["Add(x, zero)", "Sub(x, negative)", "Sub(zero, x)", "Div(one, x)", "Pow(one, x)", "Mul(x, wide)",
     "Expand(x, shape)", "Pad(x, some)", "Mul(x, x)", "Slice(x, one64, zero64, one64, minus)"],
)  # fmt: skip
def test_kept(node: str) -> None:
    """-0.0 + 0.0 is 0.0, a neutral number may be the first operand, and a result may have another shape."""
    program = model(f"""g (float[2,3] x) => (float[A,B] y)
    <float one = {{1.0}}, float[1,1,3] wide = {{1.0,1.0,1.0}}, float zero = {{0.0}}, float negative = {{-0.0}},
     int64[3] shape = {{1,2,3}}, int64[4] some = {{0,1,0,-1}}, int64[1] one64 = {{1}}, int64[1] zero64 = {{-100}},
     int64[1] minus = {{-1}}> {{
      a = {node}\n y = Flatten(a)
    }}""")
    assert not EliminateIdentities()(program).modified


@pytest.mark.parametrize(("node", "kind"), [("And(x, yes)", "bool"), ("Or(no, x)", "bool"), ("Xor(x, no)", "bool"),
                                             ("Add(nil, x)", "int64")])  # fmt: skip
def test_other_dtypes(node: str, kind: str) -> None:
    """Neutral booleans, and the zero of integers."""
    program = model(f"""g ({kind}[3] x) => ({kind}[3] y) <bool yes = {{1}}, bool no = {{0}}, int64 nil = {{0}}> {{
      a = {node}\n y = {"Not" if kind == "bool" else "Neg"}(a)
    }}""")
    inputs = [torch.tensor([1, 0, 1]).to(torch.bool if kind == "bool" else torch.int64)]
    check(program, EliminateIdentities(), inputs, ["Not" if kind == "bool" else "Neg"])


def test_names_of_outputs() -> None:
    """The producer takes the name of the output. An Identity of a graph input or of another output stays."""
    program = model("""g (float[2,3] x) => (float[2,3] y, float[2,3] z, float[2,3] u) {
      r = Abs(x)\n y = Identity(r)\n z = Identity(r)\n u = Identity(x)
    }""")
    check(program, EliminateIdentities(), [SPECIAL], ["Abs", "Identity", "Identity"])
    assert program.graph[0].outputs[0].name == program.graph[0].name == "y"


def test_in_a_branch() -> None:
    """A branch that returns an outer value keeps its Identity; an Identity of an inner value is eliminated."""
    program = model("""g (float[2,3] x, bool c) => (float[2,3] y) {
      r = Abs(x)
      y = If(c)<then_branch = a () => (float[2,3] u) { u = Identity(r) },
                else_branch = b () => (float[2,3] v) { s = Identity(r)\n v = Neg(s) }>
    }""")
    for side in (True, False):
        check(program, EliminateIdentities(), [SPECIAL, torch.tensor(side)], ["Abs", "If", "Identity", "Neg"])
