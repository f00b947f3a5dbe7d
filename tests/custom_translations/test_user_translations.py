"""custom_translation_table: functions of an emitter, onnxscript functions, functions written for torch.onnx."""

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx_ir as ir
import onnxscript
import pytest
import torch
from onnxscript import opset18, opset20
from torch import Tensor, nn

import fx_onnx
from fx_onnx import ArgumentError, UnsupportedOperatorError
from fx_onnx.translation.emitter import Emitter
from tests.compare import assert_close


@torch.library.custom_op("fx_onnx_tests::scaled", mutates_args=())
def scaled(x: Tensor, factor: float) -> Tensor:
    return x * factor


@scaled.register_fake
def _(x: Tensor, factor: float) -> Tensor:
    return torch.empty_like(x)


SCALED = torch.ops.fx_onnx_tests.scaled


class Net(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return SCALED(x + 1, 3.0).relu()


X = torch.randn(2, 3)


def function_of_an_emitter(op: Emitter, x: Any, factor: float) -> Any:
    return op.Mul(x, factor)


def first_parameter_named_op(op, x, factor):  # type: ignore[no-untyped-def]
    return op.Mul(x, factor)


@onnxscript.script(onnxscript.values.Opset("tests.domain", 1))
def script(x, factor: float):  # type: ignore[no-untyped-def]
    return opset18.Mul(x, opset18.Constant(value_float=factor))


def for_torch_onnx(x, factor):  # type: ignore[no-untyped-def]
    return opset18.Mul(x, factor)


@pytest.mark.parametrize("function", [function_of_an_emitter, first_parameter_named_op, script, for_torch_onnx])
@pytest.mark.parametrize("key", [SCALED.default, SCALED])
def test_each_form(key: Any, function: Callable[..., Any]) -> None:
    program = fx_onnx.export(Net().eval(), (X,), custom_translation_table={key: function})
    assert_close(program(X), Net()(X))


def test_a_script_becomes_a_local_function() -> None:
    program = fx_onnx.export(Net().eval(), (X,), custom_translation_table={SCALED: script})
    assert [function.name for function in program.model.functions.values()] == ["script"]
    assert program.model.graph.opset_imports["tests.domain"] == 1


@onnxscript.script(onnxscript.values.Opset("tests.domain", 2))
def inner(x, factor: float = 3.0):  # type: ignore[no-untyped-def]
    return opset18.Mul(x, opset18.Constant(value_float=factor))


@onnxscript.script(onnxscript.values.Opset("tests.domain", 2))
def outer(x, factor: float):  # type: ignore[no-untyped-def]
    return opset18.Identity(inner(x, factor=factor))


@onnxscript.script(onnxscript.values.Opset("tests.domain", 1), default_opset=opset20)
def newer(x, factor: float):  # type: ignore[no-untyped-def]
    return opset20.Gelu(x)


@onnxscript.script(onnxscript.values.Opset("tests.domain", 1), default_opset=opset18)
def older(x, factor: float):  # type: ignore[no-untyped-def]
    return opset18.GridSample(x, x)


@pytest.mark.parametrize("opset", [18, 20, 26])
def test_one_script_serves_every_opset(opset: int) -> None:
    """ONNX requires one opset in a model and its functions, so the function gets the opset of the model."""
    program = fx_onnx.export(
        Net().eval(), (X,), custom_translation_table={SCALED: outer}, opset_version=opset, verify=True
    )
    functions = program.model.functions.values()
    assert {f.name: f.opset_imports[""] for f in functions} == {"inner": opset, "outer": opset}
    assert program.model.graph.opset_imports["tests.domain"] == 2
    assert_close(program(X), Net()(X))


@pytest.mark.parametrize(
    ("function", "opset", "message"),
    [
        (newer, 18, r"opset 18 has no operator Gelu, which was written for opset 20"),
        (older, 20, r"GridSample of opset 18 means something else in opset 20"),
        (lambda x, factor: opset18.GridSample(x, x), 20, r"GridSample of opset 18 means something else in opset 20"),
    ],
)
def test_an_operator_whose_meaning_changed_is_refused(function: Any, opset: int, message: str) -> None:
    with pytest.raises(fx_onnx.TranslationError, match=message):
        fx_onnx.export(Net().eval(), (X,), custom_translation_table={SCALED: function}, opset_version=opset)


def test_two_functions_of_one_name() -> None:
    @onnxscript.script(onnxscript.values.Opset("tests.domain", 1))
    def script(x):  # type: ignore[no-untyped-def]
        return opset18.Relu(x)

    table = {SCALED: globals()["script"], torch.ops.aten.relu.default: script}
    with pytest.raises(fx_onnx.TranslationError, match=r"two functions are called tests.domain::script"):
        fx_onnx.export(Net().eval(), (X,), custom_translation_table=table)


def test_any_domain() -> None:
    def elsewhere(op: Emitter, x: Any, factor: float) -> Any:
        return op.emit("Scaled", x, domain="com.example", factor=factor)

    program = fx_onnx.export(Net().eval(), (X,), custom_translation_table={SCALED: elsewhere})
    (node,) = [node for node in program.model.graph if node.domain == "com.example"]
    assert (node.op_type, node.attributes["factor"].as_float()) == ("Scaled", 3.0)
    assert program.model.graph.opset_imports["com.example"] == 1


def test_a_users_translation_takes_precedence() -> None:
    def negative(op: Emitter, self: Any) -> Any:
        return op.Neg(self)

    table = {torch.ops.aten.relu.default: negative, SCALED: function_of_an_emitter}
    program = fx_onnx.export(Net().eval(), (X,), custom_translation_table=table)
    assert_close(program(X)[0], -(X + 1) * 3)


def test_without_a_translation_the_operator_is_named() -> None:
    with pytest.raises(
        UnsupportedOperatorError, match=r"fx_onnx_tests.scaled.default: 1 call, first at .*test_user_translations"
    ):
        fx_onnx.export(Net().eval(), (X,))


@pytest.mark.parametrize("table", [{SCALED.default: "Mul"}, {"aten::relu": function_of_an_emitter}])
def test_bad_tables(table: Any) -> None:
    with pytest.raises(ArgumentError, match="custom_translation_table"):
        fx_onnx.export(Net().eval(), (X,), custom_translation_table=table)


# ---------------------------------------------------------------- shapes of operators


LIBRARY = torch.library.Library("fx_onnx_tests_cpp", "DEF")  # as TORCH_LIBRARY does from C++
LIBRARY.define("weigh(Tensor x, float[] weights, Tensor? bias=None, *, int axis=-1, str mode='sum') -> Tensor")
LIBRARY.define("halves(Tensor x) -> (Tensor, Tensor)")
LIBRARY.define("pieces(Tensor[] xs, int n) -> Tensor[]")
LIBRARY.define("grow(Tensor x, SymInt n) -> Tensor")
LIBRARY.define("count_(Tensor(a!) x) -> Tensor(a!)")
CPP = torch.ops.fx_onnx_tests_cpp


@torch.library.impl(LIBRARY, "weigh", "CompositeExplicitAutograd")
def _(x: Tensor, weights: list[float], bias: Tensor | None = None, *, axis: int = -1, mode: str = "sum") -> Tensor:
    weighted = torch.stack([x.select(-1, i) * weight for i, weight in enumerate(weights)], -1)
    result = weighted.sum(axis) if mode == "sum" else weighted.mean(axis)
    return result if bias is None else result + bias


@torch.library.impl(LIBRARY, "halves", "CompositeExplicitAutograd")
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return x / 2, -x / 2


@torch.library.impl(LIBRARY, "pieces", "CompositeExplicitAutograd")
def _(xs: list[Tensor], n: int) -> list[Tensor]:
    return [x[:n].clone() for x in xs]


@torch.library.impl(LIBRARY, "grow", "CompositeExplicitAutograd")
def _(x: Tensor, n: int) -> Tensor:
    return x.expand(n, *x.shape).clone()


@torch.library.impl(LIBRARY, "count_", "CompositeExplicitAutograd")
def _(x: Tensor) -> Tensor:
    return x.add_(1)


def weigh(op: Emitter, x: Any, weights: Any, bias: Any, *, axis: int, mode: str) -> Any:
    reduce = op.ReduceSum if mode == "sum" else op.ReduceMean if op.opset >= 18 else None
    result = reduce(x * op.constant(weights), [axis], keepdims=0)
    return result if bias is None else result + bias


def weigh_for_torch_onnx(x, weights, bias=None, axis=-1, mode="sum"):  # type: ignore[no-untyped-def]
    summed = opset18.ReduceSum(x * opset18.Constant(value_floats=weights), [axis], keepdims=0)
    result = summed if mode == "sum" else summed / float(len(weights))
    return result if bias is None else result + bias


class Weigh(nn.Module):
    def forward(self, x: Tensor, bias: Tensor) -> list[Tensor]:
        w = [1.0, 2.0, 3.0]
        return [CPP.weigh(x, w), CPP.weigh(x, w, bias), CPP.weigh(x.T, [1.0, 2.0, 3.0], axis=1, mode="mean").abs()]


@pytest.mark.parametrize("function", [weigh, weigh_for_torch_onnx])
@pytest.mark.parametrize("opset", [18, 23])
def test_lists_optionals_and_keywords(function: Callable[..., Any], opset: int) -> None:
    """Defaults of the schema arrive too, so that one function serves every call and opset."""
    args = (torch.randn(3, 3), torch.randn(3))
    table = {CPP.weigh: function}
    program = fx_onnx.export(Weigh().eval(), args, custom_translation_table=table, opset_version=opset)
    assert_close(program(*args), tuple(Weigh()(*args)))


def test_several_results_and_lists_of_tensors() -> None:
    class Several(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            first, second = CPP.halves(x)
            one, two = CPP.pieces([x, first], 1)
            return first * 2 + second + one + two

    def halves(op: Emitter, x: Any) -> Any:
        return x / 2.0, op.Neg(x / 2.0)

    def pieces(op: Emitter, xs: Any, n: int) -> Any:
        return [op.Slice(x, [0], [n], [0]) for x in xs]

    table = {CPP.halves: halves, CPP.pieces: pieces}
    program = fx_onnx.export(
        Several().eval(), (X,), custom_translation_table=table, dynamic_shapes=({0: "n"},), verify=True
    )
    larger = torch.randn(5, 3)
    assert_close(program(larger), Several()(larger))


def test_symbolic_sizes_reach_the_function() -> None:
    class Grow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return CPP.grow(x, x.shape[0] + 1) * 2

    def grow(op: Emitter, x: Any, n: Any) -> Any:
        return op.expand(op.unsqueeze(x, 0), [n, *op.sizes(x)])

    program = fx_onnx.export(Grow().eval(), (X,), custom_translation_table={CPP.grow: grow}, dynamic_shapes=({0: "n"},))
    larger = torch.randn(5, 3)
    assert_close(program(larger), Grow()(larger))


@torch.library.custom_op("fx_onnx_tests::accumulate", mutates_args={"total"})
def accumulate(total: Tensor, x: Tensor) -> Tensor:
    total.add_(x)
    return total.sum() + x


@accumulate.register_fake
def _(total: Tensor, x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_arguments_that_are_written() -> None:
    """The new value of a written argument follows the results, and reaches views, buffers and inputs."""

    class Accumulate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(2, 2))

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            y = x.clone()
            first = accumulate(y[:, :2], x[:, 1:])
            CPP.count_(y)
            return first, accumulate(y, x), y, CPP.count_(self.seen) * 2

    def translation(op: Emitter, total: Any, x: Any) -> Any:
        new = total + x
        return op.ReduceSum(new, keepdims=0) + x, new

    table = {accumulate: translation, CPP.count_: lambda op, x: x + 1.0}
    program = fx_onnx.export(Accumulate().eval(), (X,), custom_translation_table=table)
    module = Accumulate()
    assert_close(program(X), (*module(X), module.seen))


def test_operators_of_the_runtime() -> None:
    """Translations of both forms emit operators of ONNX Runtime's domain, whose opset the model imports."""
    microsoft = onnxscript.values.Opset("com.microsoft", 1)

    class Net(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return SCALED(x @ y, 1.0) + torch.nn.functional.gelu(x)

    def matmul(op: Emitter, self: Any, other: Any) -> Any:
        return op.emit("FusedMatMul", self, other, domain="com.microsoft", alpha=2.0, transB=1)

    def gelu(self, approximate="none"):  # type: ignore[no-untyped-def]
        return onnxscript.values.Op(microsoft, "Gelu")(self)

    table = {
        torch.ops.aten.matmul.default: matmul,
        torch.ops.aten.gelu.default: gelu,
        SCALED: lambda op, x, factor: op.Mul(x, factor),
    }
    args = (torch.randn(3, 3), torch.randn(3, 3))
    program = fx_onnx.export(Net().eval(), args, custom_translation_table=table)
    assert program.model.graph.opset_imports["com.microsoft"] == 1
    assert sorted(n.op_type for n in program.model.graph if n.domain) == ["FusedMatMul", "Gelu"]
    assert_close(program(*args)[0], 2 * args[0] @ args[1].T + torch.nn.functional.gelu(args[0]))


def test_attributes_of_every_kind() -> None:
    def elsewhere(op: Emitter, x: Any, factor: float) -> Any:
        kinds = {"i": 2, "f": factor, "s": "text", "ints": [1, 2], "floats": [1.5], "strings": ["a", "b"], "yes": True}
        return op.emit("Scaled", x, domain="com.example", version=3, tensor=onnxscript.ir.tensor([1]), **kinds)

    program = fx_onnx.export(Net().eval(), (X,), custom_translation_table={SCALED: elsewhere})
    (node,) = [node for node in program.model.graph if node.domain]
    kinds = {name: attribute.type.name for name, attribute in node.attributes.items()}
    assert kinds == {
        "i": "INT", "f": "FLOAT", "s": "STRING", "ints": "INTS", "floats": "FLOATS", "strings": "STRINGS",
        "yes": "INT", "tensor": "TENSOR",
    }  # fmt: skip
    assert program.model.graph.opset_imports["com.example"] == 3


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("key", "function", "message"),
    [
        (SCALED, lambda op, x: x, r"has no parameter for 'factor' of fx_onnx_tests::scaled"),
        (SCALED, lambda op, x, factor, more: x, r"needs 'more', which is not an argument of"),
        (SCALED, lambda x: x, r"has no parameter for 'factor'"),
        (CPP.weigh, lambda op, x, weights, bias, *, mode: x, None),
        (CPP.weigh, lambda op, x, weights, *, missing: x, r"needs 'missing'"),
        (SCALED, [lambda op, x, factor: x], r"must be one function"),
        (torch.relu, lambda op, x: x, r"which a captured program never calls"),
        (nn.ReLU, lambda op, x: x, r"which a captured program never calls"),
    ],
)
def test_a_signature_that_does_not_fit_is_refused_first(key: Any, function: Any, message: str | None) -> None:
    class Never(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise AssertionError("the forward ran")

    expected = fx_onnx.CaptureError if message is None else ArgumentError
    with pytest.raises(expected, match=message or "the forward ran"):
        fx_onnx.export(Never().eval(), (X,), custom_translation_table={key: function})


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda op, x, factor: (x, x), r"returned 2 results, but the operator has 1"),
        (lambda op, x, factor: None, r"returned None instead of an ONNX value"),
        (lambda op, x, factor: factor, r"returned 3.0 instead of an ONNX value"),
        (lambda op, x, factor: op.Cast(x, to=7), r"returns int64.* where the operator returns float"),
        (lambda op, x, factor: op.Mull(x, factor), r"has no operator Mull; did you mean 'Mul'"),
    ],
)
def test_results_that_do_not_fit(function: Any, message: str) -> None:
    with pytest.raises(fx_onnx.TranslationError, match=message) as raised:
        fx_onnx.export(Net().eval(), (X,), custom_translation_table={SCALED: function})
    assert "fx_onnx_tests.scaled.default" in str(raised.value)
    assert "test_user_translations.py" in str(raised.value)


def test_an_argument_without_a_parameter_must_be_its_default() -> None:
    class Sum(nn.Module):
        def __init__(self, **options: Any) -> None:
            super().__init__()
            self.options = options

        def forward(self, x: Tensor) -> Tensor:
            return CPP.weigh(x, [1.0, 2.0, 3.0], **self.options)

    def translation(op: Emitter, x: Any, weights: Any, bias: Any, mode: str) -> Any:
        return op.ReduceSum(x * op.constant(weights), [1], keepdims=0)

    table = {CPP.weigh: translation}
    assert_close(fx_onnx.export(Sum().eval(), (X,), custom_translation_table=table)(X), Sum()(X))
    with pytest.raises(fx_onnx.TranslationError, match=r"translation has no parameter for axis=1"):
        fx_onnx.export(Sum(axis=1).eval(), (X,), custom_translation_table=table)


def test_two_opsets_of_one_domain() -> None:
    def one(op: Emitter, x: Any, factor: float) -> Any:
        first = op.emit("First", x, domain="com.example", version=1)
        return op.emit("Second", first, domain="com.example", version=2)

    with pytest.raises(fx_onnx.TranslationError, match=r"imports one opset of com.example, but 1 and 2"):
        fx_onnx.export(Net().eval(), (X,), custom_translation_table={SCALED: one})


def test_functions_of_torch_onnx_get_values_for_symbolic_numbers() -> None:
    """torch.onnx passes symbolic numbers as values too. Split returns ``num_outputs`` results."""

    def floordiv(a: Any, b: Any) -> Any:
        assert isinstance(a, ir.Value)
        return opset18.Div(a, b)

    def halves(x: Any, split_size: Any, dim: int = 0) -> Any:
        assert isinstance(split_size, ir.Value)
        return opset18.Split(x, axis=dim, num_outputs=2)

    class Halves(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            first, second = x.split(x.shape[0] // 2)
            return first - second

    table = {operator.floordiv: floordiv, torch.ops.aten.split.Tensor: halves}
    shapes = ({0: torch.export.Dim("half", min=2, max=9) * 2},)
    program = fx_onnx.export(
        Halves().eval(), (torch.randn(6, 2),), dynamic_shapes=shapes, custom_translation_table=table
    )
    assert "Split" in [node.op_type for node in program.model.graph]
    for rows in (6, 10):
        x = torch.randn(rows, 2)
        assert_close(program(x), Halves()(x))


def test_unused_entries_are_in_the_report(tmp_path: Path) -> None:
    table = {
        torch.ops.aten.silu.default: lambda op, self: op.Mul(self, op.Sigmoid(self)),
        torch.ops.aten.add.Scalar: lambda op, self, other, alpha=1: op.Add(self, other),
        torch.ops.aten.gelu: lambda op, self, approximate="none": op.Gelu(self),
    }
    fx_onnx.export(nn.SiLU().eval(), (X,), custom_translation_table=table, report=True, artifacts_dir=tmp_path)
    (report,) = tmp_path.glob("*.md")
    assert "custom_translation_table has unused entries: aten.add.Scalar, aten.gelu" in report.read_text()


# ---------------------------------------------------------------- the types of the results


@onnxscript.script(onnxscript.values.Opset("tests.domain", 1))
def transposing_script(x, factor: float):  # type: ignore[no-untyped-def]
    return opset18.Transpose(opset18.Mul(x, opset18.Constant(value_float=factor)), perm=[1, 0])


@onnxscript.script(onnxscript.values.Opset("tests.domain", 1))
def halving_script(x, factor: float):  # type: ignore[no-untyped-def]
    return opset18.Cast(x, to=10)


def branching(op: Emitter, x: Any, factor: float) -> Any:
    then, other = op.nested(), op.nested()
    branches = then.finish([then.Mul(x, factor)]), other.finish([other.Sub(x, factor)])
    chosen = op.If(op.Greater(op.ReduceSum(x, keepdims=0), 0.0), then_branch=branches[0], else_branch=branches[1])
    return op.Unsqueeze(chosen, [0])


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda op, x, factor: op.Transpose(x, perm=[1, 0]), "float[3, 2]"),
        (lambda op, x, factor: op.Unsqueeze(x, [0]), "float[1, 2, 3]"),
        (lambda op, x, factor: op.Reshape(x, [6]), "float[6]"),
        (lambda op, x, factor: op.Reshape(x, op.Concat(op.Shape(x, start=1), [-1], axis=0)), "float[3, 2]"),
        (lambda op, x, factor: op.ReduceSum(x), "float[1, 1]"),
        (lambda op, x, factor: op.Cast(x, to=torch.float16), "float16[2, 3]"),
        (lambda x, factor: opset18.Transpose(x, perm=[1, 0]), "float[3, 2]"),
        (branching, "float[1, 2, 3]"),
        (transposing_script, "float[3, 2]"),
        (halving_script, "float16[2, 3]"),
    ],
)
def test_a_result_of_another_type_is_refused(function: Callable[..., Any], found: str) -> None:
    """Tests that the message has the function, both types and the line of the user's code."""
    with pytest.raises(fx_onnx.TranslationError) as raised:
        fx_onnx.export(Net().eval(), (X,), custom_translation_table={SCALED: function})
    message = str(raised.value)
    assert (getattr(function, "__name__", None) or function.name) in message
    assert f"returns {found} where the operator returns float[2, 3]" in message
    assert "SCALED(x + 1, 3.0).relu()" in message
    assert "\n" not in message


def test_a_result_of_the_wrong_static_size_is_refused_beside_a_dynamic_one() -> None:
    def doubled(op: Emitter, x: Any, factor: float) -> Any:
        return op.Concat(x, x, axis=1)

    with pytest.raises(fx_onnx.TranslationError, match=r"returns float\[\?, 6\] where .* float\[\?, 3\]"):
        fx_onnx.export(Net().eval(), (X,), dynamic_shapes=({0: "n"},), custom_translation_table={SCALED: doubled})


def test_a_result_whose_type_onnx_cannot_infer_is_accepted() -> None:
    def opaque(op: Emitter, x: Any, factor: float) -> Any:
        return op.emit("FusedScale", x, domain="com.example", factor=factor)

    program = fx_onnx.export(Net().eval(), (X,), custom_translation_table={SCALED: opaque})
    (value,) = (node.outputs[0] for node in program.model.graph if node.op_type == "FusedScale")
    assert value.shape == (2, 3)
