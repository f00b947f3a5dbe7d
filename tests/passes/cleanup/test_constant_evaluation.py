"""Constant folding in the ONNX graph."""

import pytest
import torch

from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.weights import LazyWeight, weight
from fx_onnx.passes.cleanup.constant_evaluation import EvaluateConstants
from fx_onnx.passes.matchers import MAX_CONSTANT_BYTES
from tests.passes.checking import check, model

CONSTANTS = """<int64[3] i = {-7,2,5}, int64[3] j = {2,-3,-2}, float[2,3] f = {0.5,1.5,-2.0,3.0,0.25,-0.0},
  int64 one = {1}, int64[1] zero = {0}, int64[1] two = {2}, int64[2] axes = {0,-1}, int64[2] s = {3,-1},
  int64[3] t = {4,1,3},  int64 ten = {10}, int64 minus = {-2},
  bool[3] b = {1,0,1}, float[3] g = {2.0,3.0,4.0}, int64[2] pick = {-1,0}>"""


@pytest.mark.parametrize(
    "node",
    ["Div(i, j)", "Mod(i, j)", "Mod<fmod=1>(i, j)", "Add(i, j)", "Max(i, j, i)", "Cast<to=7>(f)", "Cast<to=9>(f)",
     "Concat<axis=0>(i, j)", "Unsqueeze(f, axes)", "Squeeze(zero)", "Reshape(f, s)", "Expand(i, t)",
     "Transpose<perm=[1,0]>(f)", "Slice(f, zero, two, zero)", "Gather<axis=1>(f, pick)", "Gather(i, one)",
     "Range(ten, one, minus)", "ConstantOfShape(t)", "ConstantOfShape<value = int64[1] {3}>(t)", "Where(b, i, j)",
     "And(b, b)", "LessOrEqual(i, j)", "Div(f, g)", "Sqrt(g)", "Cos(f)", "MatMul(f, g)", "Neg(i)", "Shape(f)",
     "Shape<start=1>(f)", "Size(f)", "Constant<value_ints=[1,2]>()", "Constant<value_float=0.5>()",
     "Constant<value = float[2] {0.5,-0.0}>()"],
)  # fmt: skip
def test_constants_of_the_exporter_fold_at_once(node: str) -> None:
    """The folded constant equals ONNX Runtime's result, in dtype and shape too."""
    program = model(f"g (float[3] x) => (y, float[3] z) {CONSTANTS} {{ a = {node}\n y = Identity(a)\n z = Neg(x) }}")
    result = check(program, EvaluateConstants(), [torch.randn(3)], ["Identity", "Neg"])
    assert not isinstance(result.graph[0].inputs[0].const_value, LazyWeight)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("node", ["Div(low, minus)", "Div(low, mixed)", "Div(weight, minus)"])
def test_the_lowest_integer_by_minus_one_is_not_computed(node: str, dtype: str) -> None:
    """torch would end the process."""
    low = torch.iinfo(getattr(torch, dtype)).min
    constants = f"<{dtype}[2] low = {{{low},3}}, {dtype}[1] minus = {{-1}}, {dtype}[2] mixed = {{-1,2}}>"
    program = model(f"g () => ({dtype}[N] y) {constants} {{ y = {node} }}".replace("weight", "low"))
    assert not EvaluateConstants()(program).modified


@pytest.mark.parametrize("node", ["Div(other, minus)", "Div(low, two)", "Mod(low, minus)"])
def test_a_quotient_in_range_is_computed(node: str) -> None:
    constants = (
        f"<int64[2] low = {{{-(2**63)},3}}, int64[1] minus = {{-1}}, int64[1] two = {{2}}, int64[2] other = {{4,-5}}>"
    )
    program = model(f"g () => (int64[2] y) {constants} {{ a = {node}\n y = Identity(a) }}")
    assert EvaluateConstants()(program).modified


def test_chain_and_equal_constants() -> None:
    """A folded node lets its consumer fold too, and equal constants are shared."""
    program = model(f"""g (float[2,6] x) => (float[12] y, float[12] z) {CONSTANTS} {{
      h = Shape(x)\n p = Gather(h, zero)\n q = Gather(h, one)\n u = Unsqueeze(q, zero)\n m = Mul(p, u)\n
      y = Reshape(x, m)\n n = Add(m, zero)\n z = Reshape(x, n)
    }}""")
    check(program, EvaluateConstants(), [torch.randn(2, 6)], ["Reshape", "Reshape"])
    assert program.graph[0].inputs[1] is program.graph[1].inputs[1]


def test_buffer_becomes_a_computed_weight() -> None:
    """A buffer that two nodes read folds to a lazy weight; its data is not read."""
    table = torch.arange(512).reshape(1, 512)
    program = model("""g (int64[2,8] x) => (int64[2,8] y, int64[2,3] z)
    <int64[1] zero = {0}, int64[1] eight = {8}, int64[1] three = {3}, int64[1] one = {1}> {
      a = Slice(position_ids, zero, eight, one)\n y = Add(x, a)\n b = Slice(position_ids, zero, three, one)
      c = Expand(b, s)\n z = Neg(c)
    }""".replace("<int64[1]", "<int64[2] s = {2,3}, int64[1]", 1), {"position_ids": table})  # fmt: skip
    value = program.graph.initializers["position_ids"]
    value.metadata_props[metadata.INPUT_KIND] = "BUFFER"
    check(program, EvaluateConstants(), [torch.ones(2, 8, dtype=torch.int64)], ["Add", "Neg"])
    folded = program.graph.initializers["position_ids_folded"]
    assert isinstance(folded.const_value, LazyWeight)
    assert metadata.INPUT_KIND not in folded.metadata_props


def test_fake_weights_fold() -> None:
    """No data is read, so a weight may be on the meta device."""
    program = model("""g (float[1,2] x) => (float[1,2] y) <int64[1] zero = {0}> {
      a = Unsqueeze(w, zero)\n y = Add(x, a)
    }""", {"w": torch.randn(2)})  # fmt: skip
    program.graph.initializers["w"].const_value = weight(torch.empty(2, device="meta"), "w")
    assert EvaluateConstants()(program).modified
    assert [node.op_type for node in program.graph] == ["Add"]


def test_tied_parameter_stays() -> None:
    """A parameter with another consumer is not folded, because it would be stored twice."""
    program = model("""g (float[1,2] x) => (float[1,2] y, float[2] z) <int64[1] zero = {0}> {
      a = Unsqueeze(w, zero)\n y = Add(x, a)\n z = Neg(w)
    }""", {"w": torch.randn(2)})  # fmt: skip
    assert not EvaluateConstants()(program).modified


def test_large_results_are_not_folded() -> None:
    """A node stays if its result would be a large constant, or larger than the parameter that it replaces."""
    count = MAX_CONSTANT_BYTES // 4 + 1
    program = model(f"""g (float[1] x) => (float[{count}] y, float[{count},3] z) <int64[1] n = {{{count}}}> {{
      a = Expand(one, n)\n y = Mul(x, a)\n b = Gather(w, ids)\n z = Mul(x, b)
    }}""", {"one": torch.ones(1), "w": torch.randn(3, 3), "ids": torch.zeros(count, dtype=torch.int64)})  # fmt: skip
    assert not EvaluateConstants()(program).modified


def test_overridable_and_returned_values_stay() -> None:
    """An initializer that is a graph input is not a constant, and a node stays if the graph returns its result."""
    program = model("""g (float[2] x) => (float[2] y, float[2] z) <float[2] c = {1.0,2.0}> {
      z = Neg(c)\n a = Neg(d)\n y = Add(x, a)
    }""", {"d": torch.randn(2)})  # fmt: skip
    program.graph.inputs.append(program.graph.initializers["d"])
    assert not EvaluateConstants()(program).modified


def test_quantized_weights_stay() -> None:
    """A DequantizeLinear of a weight is not folded."""
    program = model("g (float[2] x) => (float[2] y) <float s = {0.1}> { a = DequantizeLinear(w, s)\n y = Add(x, a) }",
                    {"w": torch.ones(2, dtype=torch.int8)})  # fmt: skip
    check(program, EvaluateConstants(), [torch.randn(2)], ["DequantizeLinear", "Add"])


def test_no_cast_makes_a_weight_wider() -> None:
    """A Cast of a half-precision or quantized parameter stays; a Cast of a mask, which is a buffer, is folded."""
    text = "g (float[4] x) => (float[4] y) { c = Cast<to=1>(w)\n y = Add(x, c) }"
    for dtype in (torch.float16, torch.bfloat16, torch.int8):
        check(model(text, {"w": torch.ones(4).to(dtype)}), EvaluateConstants(), [torch.randn(4)], ["Cast", "Add"])
    for dtype, nodes in ((torch.int8, ["Cast", "Add"]), (torch.bool, ["Add"]), (torch.int32, ["Add"])):
        program = model(text, {"w": torch.ones(4).to(dtype)})
        program.graph.initializers["w"].metadata_props[metadata.INPUT_KIND] = "BUFFER"
        check(program, EvaluateConstants(), [torch.randn(4)], nodes)
