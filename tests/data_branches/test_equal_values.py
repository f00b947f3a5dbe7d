"""Equal operators of equal values have one number; draws only where the paths have been the same."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from fx_onnx.capture.capture import Capture
from fx_onnx.capture.captured import DataCondition
from fx_onnx.data_branches.equal_values import Numbered, Numbers, operator_key, outer_inputs, reads
from fx_onnx.onnx_model import metadata

FLOAT = ir.TensorType(ir.DataType.FLOAT)


def numbered(text: str, numbers: Numbers, answers: tuple[bool, ...] = (), draw: str = "['rand']") -> Numbered:
    """Returns the numbers of a model in ONNX's text format."""
    import onnx.parser

    model = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18, "fx_onnx": 1]>{text}'))
    for node in model.graph:
        node.metadata_props[metadata.NAME_SCOPES] = draw
    capture = Capture(None, {}, {}, (), "", conditions=tuple(DataCondition(each, "") for each in answers))  # type: ignore[arg-type]
    return Numbered(capture, model, numbers)


def number(path: Numbered, name: str) -> object:
    return next(found for value, found in path.values.items() if value.name == name)


FIRST = "g (float[2] x) => (float[2] y) { a = Add(x, x) y = Relu(a) }"


@pytest.mark.parametrize(
    ("second", "is_equal"),
    [
        ("g (float[2] x) => (float[2] y) { b = Add(x, x) y = Relu(b) }", True),
        ("g (float[2] x) => (float[2] y) { b = Mul(x, x) y = Relu(b) }", False),
        ("g (float[2] x) => (float[2] y) { b = Add(x, x) y = LeakyRelu<alpha = 0.5>(b) }", False),
        ("g (float[2] x, float[2] z) => (float[2] y) { b = Add(x, z) y = Relu(b) }", False),
    ],
)
def test_equal_calls_of_two_models(second: str, is_equal: bool) -> None:
    numbers = Numbers()
    assert (number(numbered(FIRST, numbers), "y") == number(numbered(second, numbers), "y")) is is_equal


BRANCH = """g (float[2] x, bool c) => (float[2] y) {{ a = Neg(x) y = If(c) <
  then_branch = t () => (float[2] p) {{ q = {operator}(a) p = Relu(q) }},
  else_branch = e () => (float[2] r) {{ r = Identity(x) }}> }}"""


@pytest.mark.parametrize(("operator", "is_equal"), [("Exp", True), ("Log", False)])
def test_bodies_are_compared(operator: str, is_equal: bool) -> None:
    numbers = Numbers()
    first, second = (numbered(BRANCH.format(operator=each), numbers) for each in ("Exp", operator))
    assert (number(first, "y") == number(second, "y")) is is_equal
    node = first.model.graph[-1]
    assert [value and value.name for value in outer_inputs(node)] == ["c", "a", "x"]
    assert [(reader.op_type, place) for reader, place in reads(node)] == [("If", 0), ("Exp", 0), ("Identity", 0)]
    assert (operator_key(node) == operator_key(second.model.graph[-1])) is is_equal


DRAW = "g (float[2] x) => (float[2] y) {{ {before} y = RandomUniformLike(x) {after} }}"
MARK = "c = Cast<to = 9>(x) m = fx_onnx.Condition(c)"


@pytest.mark.parametrize(
    ("before", "after", "is_equal"), [("", MARK, True), (MARK, "", False)], ids=["before the condition", "after it"]
)
def test_draws(before: str, after: str, is_equal: bool) -> None:
    numbers = Numbers()
    text = DRAW.format(before=before, after=after)
    first, second = (numbered(text, numbers, (answer,)) for answer in (True, False))
    assert first.conditions == second.conditions and len(first.markers) == 1
    assert (number(first, "y") == number(second, "y")) is is_equal


def test_two_draws_of_one_path_differ() -> None:
    path = numbered(
        "g (float[2] x) => (float[2] y, float[2] z) { y = RandomUniformLike(x) z = RandomUniformLike(x) }", Numbers()
    )
    assert number(path, "y") != number(path, "z")


def test_weights_count_by_name_and_constants_by_value() -> None:
    numbers = Numbers()
    paths = [numbered(FIRST, numbers) for _ in range(1)]
    del paths
    found = []
    for names in (("a", "b"), ("c", "b")):
        model = ir.Model(ir.Graph((), (), nodes=(), opset_imports={"": 18}), ir_version=10)
        for name in names:
            tensor = ir.Tensor(np.zeros(2, np.float32), name=name)
            value = ir.Value(name=name, const_value=tensor, type=FLOAT, shape=ir.Shape([2]))
            if name == "b":
                value.metadata_props[metadata.INPUT_KIND] = "PARAMETER"
            model.graph.register_initializer(value)
        path = Numbered(Capture(None, {}, {}, (), ""), model, numbers)  # type: ignore[arg-type]
        found.append([path.values[each] for each in model.graph.initializers.values()])
    assert found[0] == found[1] and found[0][0] != found[0][1]


def test_a_closure_has_all_that_is_read() -> None:
    path = numbered(FIRST, Numbers())
    (y,) = (path.values[value] for value in path.model.graph.outputs)
    assert path.closure([y]) == {number(path, name)[0] for name in ("x", "a", "y")}  # type: ignore[index]
