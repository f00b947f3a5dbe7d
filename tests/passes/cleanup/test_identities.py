"""Elimination of computations that do not change their input, or whose reader does them too."""

import pytest
import torch

from fx_onnx.passes.cleanup.identities import (
    eliminate_constant_choices,
    eliminate_identities,
    eliminate_softmax_shifts,
    merge_casts,
)
from tests.passes.checking import check, model

SPECIAL = torch.tensor([[0.0, -0.0, 1.5], [float("inf"), float("nan"), -2.0]])


@pytest.mark.parametrize(
    "node",
    ["Identity(r)", "Concat<axis=0>(r)", "Max(r)", "Sum(r)", "Mul(r, one)", "Mul(ones, r)", "Div(r, one)",
     "Sub(r, zero)", "Add(r, negative)", "Pow(r, one)", "Tile(r, ones64)", "Pad(r, zeros64)",
     "Split<num_outputs=1>(r)"],
)  # fmt: skip
def test_eliminated(node: str) -> None:
    """A neutral node is eliminated; signed zeros, infinities and NaN keep their values."""
    program = model(f"""g (float[2,3] x) => (float[2,3] y)
    <float one = {{1.0}}, float[3] ones = {{1.0,1.0,1.0}}, float zero = {{0.0}}, float negative = {{-0.0}},
     int64[2] ones64 = {{1,1}}, int64[4] zeros64 = {{0,0,0,0}}> {{
      r = Abs(x)\n a = {node}\n y = Neg(a)
    }}""")
    result = check(program, eliminate_identities, [SPECIAL], ["Abs", "Neg"])
    assert result.graph[1].inputs[0] is result.graph[0].outputs[0]


@pytest.mark.parametrize(("condition", "chosen"), [("no", "Abs"), ("noes", "Abs"), ("yes", "Sin")])
def test_a_constant_condition_chooses(condition: str, chosen: str) -> None:
    program = model(f"""g (float[2,3] x) => (float[2,3] y)
    <bool no = {{0}}, bool[3] noes = {{0,0,0}}, bool yes = {{1}}> {{
      r = Abs(x)\n s = Sin(x)\n a = Where({condition}, s, r)\n y = Neg(a)
    }}""")
    check(program, eliminate_constant_choices, [torch.randn(2, 3)], [chosen, "Neg"])


@pytest.mark.parametrize("choice", ["Where(mixed, r, x)", "Where(noes, r, one)", "Where(wide, r, row)"])
def test_a_choice_stays(choice: str) -> None:
    """The condition is mixed, or the result has a larger shape than the operand."""
    program = model(f"""g (float[2,3] x, float[3] row) => (y)
    <bool[3] mixed = {{0,1,0}}, bool[3] noes = {{0,0,0}}, bool[2,3] wide = {{0,0,0,0,0,0}}, float one = {{1.0}}> {{
      r = Abs(x)\n y = {choice}
    }}""")
    assert not eliminate_constant_choices(program).modified


def test_empty_inputs_of_a_concat() -> None:
    """The rest after a rotation of all features is empty."""
    program = model("""g (float[2,3] x, float[2,0] e) => (float[2,3] y, float[2,6] z, float[2,0] w) {
      r = Abs(x)\n a = Concat<axis=-1>(r, e)\n y = Neg(a)
      z = Concat<axis=1>(e, r, e, r)\n w = Concat<axis=1>(e, e)
    }""")
    inputs = [SPECIAL, torch.zeros(2, 0)]
    result = check(program, eliminate_identities, inputs, ["Abs", "Concat", "Concat", "Neg"])
    assert [len(node.inputs) for node in result.graph if node.op_type == "Concat"] == [2, 2]


@pytest.mark.parametrize(
    "node",
    ["Add(x, zero)", "Sub(x, negative)", "Sub(zero, x)", "Div(one, x)", "Pow(one, x)", "Mul(x, wide)",
     "Pad(x, some)", "Mul(x, x)"],
)  # fmt: skip
def test_kept(node: str) -> None:
    """-0.0 + 0.0 is 0.0, a neutral number may be the first operand, and a result may have another shape."""
    program = model(f"""g (float[2,3] x) => (float[A,B] y)
    <float one = {{1.0}}, float[1,1,3] wide = {{1.0,1.0,1.0}}, float zero = {{0.0}}, float negative = {{-0.0}},
     int64[4] some = {{0,1,0,-1}}> {{
      a = {node}\n y = Flatten(a)
    }}""")
    assert not eliminate_identities(program).modified


@pytest.mark.parametrize(("node", "kind"), [("And(x, yes)", "bool"), ("Or(no, x)", "bool"), ("Xor(x, no)", "bool"),
                                             ("Add(nil, x)", "int64")])  # fmt: skip
def test_other_dtypes(node: str, kind: str) -> None:
    """Neutral booleans, and the zero of integers."""
    program = model(f"""g ({kind}[3] x) => ({kind}[3] y) <bool yes = {{1}}, bool no = {{0}}, int64 nil = {{0}}> {{
      a = {node}\n y = {"Not" if kind == "bool" else "Neg"}(a)
    }}""")
    inputs = [torch.tensor([1, 0, 1]).to(torch.bool if kind == "bool" else torch.int64)]
    check(program, eliminate_identities, inputs, ["Not" if kind == "bool" else "Neg"])


def test_names_of_outputs() -> None:
    """The producer takes the name of the output. An Identity of a graph input or of another output stays."""
    program = model("""g (float[2,3] x) => (float[2,3] y, float[2,3] z, float[2,3] u) {
      r = Abs(x)\n y = Identity(r)\n z = Identity(r)\n u = Identity(x)
    }""")
    check(program, eliminate_identities, [SPECIAL], ["Abs", "Identity", "Identity"])
    assert program.graph[0].outputs[0].name == program.graph[0].name == "y"


def test_in_a_branch() -> None:
    """A branch that returns an outer value keeps its Identity; an Identity of an inner value is eliminated."""
    program = model("""g (float[2,3] x, bool c) => (float[2,3] y) {
      r = Abs(x)
      y = If(c)<then_branch = a () => (float[2,3] u) { u = Identity(r) },
                else_branch = b () => (float[2,3] v) { s = Identity(r)\n v = Neg(s) }>
    }""")
    for side in (True, False):
        check(program, eliminate_identities, [SPECIAL, torch.tensor(side)], ["Abs", "If", "Identity", "Neg"])


@pytest.mark.parametrize(
    ("first", "second", "operators"),
    [
        (11, 6, ["Cast"]),  # float → double → int32: the double holds every float
        (11, 1, []),  # float → double → float: nothing
        (10, 1, ["Cast", "Cast"]),  # float → float16 → float rounds
        (7, 1, ["Cast", "Cast"]),  # float → int64 → float truncates
        (9, 1, ["Cast", "Cast"]),  # float → bool → float
        (1, 11, ["Cast"]),  # float → float is nothing
    ],
)
def test_from_float(first: int, second: int, operators: list[str]) -> None:
    """Pairs of Casts from float32."""
    program = model(f"""g (float[N] x) => (y) {{
      r = Relu(x)\n a = Cast<to={first}>(r)\n b = Cast<to={second}>(a)\n y = Neg(b)
    }}""")
    check(program, merge_casts, [torch.tensor([1.7, 0.1, 70000.3])], ["Relu", *operators, "Neg"])


def test_from_integers() -> None:
    """int64 → float64 may round, so it stays; int32 → float64 and bool → float32 are lossless."""
    program = model("""g (int64[N] x, int32[N] y, bool[N] z) => (int64[N] a, int64[N] b, bool[N] c) {
      a1 = Cast<to=11>(x)\n a = Cast<to=7>(a1)
      b1 = Cast<to=11>(y)\n b = Cast<to=7>(b1)
      c1 = Cast<to=1>(z)\n c2 = Cast<to=9>(c1)\n c = Not(c2)
    }""")
    inputs = [torch.tensor([2**53 + 1]), torch.tensor([2**31 - 1], dtype=torch.int32), torch.tensor([True])]
    check(program, merge_casts, inputs, ["Cast", "Cast", "Cast", "Not"])


def shifted(text: str, opset: int = 20) -> object:
    return model(f"g (float[N,3,4] x) => (float[N,3,4] y) <int64[1] last = {{2}}, int64[1] rows = {{-2}}> {{ {text} }}",
                 opset=opset)  # fmt: skip


@pytest.mark.parametrize(("axes", "axis"), [("last", -1), ("last", 2), ("rows", 1)])
def test_the_shift_is_removed(axes: str, axis: int) -> None:
    program = shifted(f"m = ReduceMax(x, {axes})\n s = Sub(x, m)\n y = Softmax<axis={axis}>(s)")
    check(program, eliminate_softmax_shifts, [100 * torch.randn(2, 3, 4)], ["Softmax"], tolerance=0)


@pytest.mark.parametrize(
    "text",
    [
        "m = ReduceMax(x, rows)\n s = Sub(x, m)\n y = Softmax<axis=2>(s)",
        "m = ReduceMax(x)\n s = Sub(x, m)\n y = Softmax<axis=2>(s)",
        "n = Neg(x)\n m = ReduceMax(n, last)\n s = Sub(x, m)\n y = Softmax<axis=2>(s)",
        "m = ReduceMin(x, last)\n s = Sub(x, m)\n y = Softmax<axis=2>(s)",
        "m = ReduceMax(x, last)\n s = Sub(x, m)\n z = Softmax<axis=2>(s)\n y = Add(z, s)",
    ],
    ids=["other axis", "all axes", "another value", "minimum", "another consumer"],
)
def test_declined(text: str) -> None:
    assert not eliminate_softmax_shifts(shifted(text)).modified
