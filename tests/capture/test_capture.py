"""Capture keeps what was asked to be dynamic, says what came out static and why, and explains its failures."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.export import AdditionalInputs, Dim

from fx_onnx.capture.capture import Capture, capture, is_in_onnx_export
from fx_onnx.capture.request import parse_request
from fx_onnx.core.errors import CaptureError, OnnxExporterWarning

BATCH, SEQ = Dim("batch"), Dim("seq")


class Fn(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y=None, **extra):
        return self.function(x) if y is None else self.function(x, y, **extra)


def t(*shape):
    return torch.randn(*shape)


def run(function, *args, **options) -> Capture:
    """Captures without a warning."""
    model = function if isinstance(function, (torch.nn.Module, torch.export.ExportedProgram)) else Fn(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        if isinstance(model, torch.nn.Module):
            model.eval()
        return capture(parse_request(model, args, **options))


def shapes(captured: Capture) -> list[tuple[str, ...]]:
    """The user inputs' shapes, dims under the users' names."""
    program = captured.exported_program
    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    names = captured.symbol_names
    inputs = [values[name] for name in program.graph_signature.user_inputs]
    return [tuple(names.get(str(dim), str(dim)) for dim in value.shape) for value in inputs]


def test_static():
    captured = run(torch.relu, t(2, 3))
    assert (captured.strategy, captured.symbol_names, captured.specialized) == ("torch.export(strict=False)", {}, ())


@pytest.mark.parametrize(
    ("function", "args", "spec", "expected"),
    [
        (torch.relu, (t(3, 4),), ({0: "batch"},), [("batch", "4")]),
        (torch.relu, (t(3, 4),), ({0: BATCH, 1: SEQ},), [("batch", "seq")]),
        (torch.add, (t(3, 4), t(3, 4)), ({0: "batch"}, {0: "batch"}), [("batch", "4")] * 2),
        (torch.matmul, (t(3, 4), t(4, 5)), ({1: "k"}, {0: "k", 1: "n"}), [("3", "k"), ("k", "n")]),
        (lambda x, y: x[::2] + y, (t(6), t(3)), ({0: 2 * BATCH}, {0: BATCH}), [("2*batch",), ("batch",)]),
        (lambda x, y: x.reshape(-1, 2) + y, (t(6), t(3, 2)), ({0: "long"}, {0: "n"}), [("long",), ("n", "2")]),
        (lambda x, y, z: x + y + z, (t(3), t(3)), {"x": {0: "n"}, "y": {0: "n"}, "z": {0: "n"}}, [("n",)] * 3),
    ],
)
def test_names(function, args, spec, expected):
    kwargs = {"z": t(3)} if isinstance(spec, dict) else None
    captured = run(function, *args, kwargs=kwargs, dynamic_shapes=spec)
    assert shapes(captured) == expected
    assert captured.specialized == ()


def test_an_expression_has_the_users_name():
    captured = run(lambda x, y: x[2:] + y, t(6), t(4), dynamic_shapes=({0: "long"}, {0: "n"}))
    symbol = next(expression for expression, name in captured.symbol_names.items() if name == "n")
    assert captured.symbol_names == {f"{symbol} + 2": "long", symbol: "n"}


def test_dims_without_a_name_have_no_entry():
    assert run(torch.relu, t(3, 4), dynamic_shapes=({0: Dim.AUTO, 1: Dim.DYNAMIC},)).symbol_names == {}


def test_additional_inputs():
    more = AdditionalInputs()
    more.add((t(5, 4),))
    assert shapes(run(torch.relu, t(3, 4), dynamic_shapes=more))[0][1] == "4"


def test_two_var_keywords():
    kwargs = {"b": t(3), "a": t(3)}
    spec = {"a": {0: "n"}, "b": {0: "n"}, "x": {0: "n"}, "y": {0: "n"}}
    model = Fn(lambda x, y, a, b: x + y + a - b)
    captured = run(model, t(3), t(3), kwargs=kwargs, dynamic_shapes=spec)
    assert captured.exported_program.graph_signature.user_inputs == ("x", "y", "b", "a")
    assert shapes(captured) == [("n",)] * 4
    assert "forward" not in vars(model)


def test_keywords_out_of_order():
    class Keywords(torch.nn.Module):
        def forward(self, a, b):
            return a[:, None] + b

    captured = run(Keywords(), kwargs={"b": t(4), "a": t(3)}, dynamic_shapes={"a": {0: "m"}, "b": {0: "n"}})
    assert captured.exported_program.graph_signature.user_inputs == ("b", "a")
    assert shapes(captured) == [("n",), ("m",)]


def test_one_tensor_given_twice_is_two_inputs():
    x = t(3)
    program = run(torch.sub, x, x).exported_program
    assert torch.equal(program.module()(t(3) * 0 + 5, t(3) * 0 + 2), torch.full((3,), 3.0))


@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("spec", [{0: "batch"}, {0: BATCH}, {0: Dim.AUTO}, {0: Dim.DYNAMIC}, {0: "batch", 1: "seq"}])
def test_size_0_and_1_stay_dynamic(batch, spec):
    model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    captured = run(model, t(batch, 1 if 1 in spec else 3, 8), dynamic_shapes=(spec,))
    program = captured.exported_program
    output = next(iter(program.graph.output_node().args[0])).meta["val"]
    assert all(isinstance(output.shape[axis], torch.SymInt) for axis in spec)
    assert captured.strategy == "torch.export(strict=False)"
    assert program.example_inputs[0][0].shape[0] == batch
    for size in (1, 4):
        x = t(size, 3, 8)
        torch.testing.assert_close(program.module()(x), model(x))


def test_size_1_with_names_that_are_one_dim():
    with pytest.warns(OnnxExporterWarning, match="makes the dims 'a' and 'b' equal; both are called 'a'"):
        captured = capture(parse_request(Fn(torch.add).eval(), (t(1, 2), t(1, 2)), dynamic_shapes=({0: "a"}, {0: "b"})))
    assert shapes(captured) == [("a", "2")] * 2


def test_size_1_beside_a_sum_of_sizes():
    def step(x, y):  # a decoding step: the mask is as long as the past and the input together
        return torch.cat([x, x.new_zeros(5)]) + y

    captured = run(step, t(1), t(6), dynamic_shapes=({0: "new"}, {0: "total"}))
    assert captured.specialized == ()


def test_size_1_that_the_model_fixes():
    with pytest.warns(OnnxExporterWarning, match=r"Axis 0 \('n'\) of input 'x' is static with size 1: "):
        captured = capture(parse_request(Fn(lambda x: x.reshape(4)).eval(), t(1, 4), dynamic_shapes=({0: "n"},)))
    assert shapes(captured) == [("1", "4")]


@pytest.mark.parametrize(("dim", "name"), [("n", "n"), (BATCH, "batch"), (Dim.AUTO, None)])
def test_specialised(dim, name):
    def fixed(x):
        return x.reshape(3, 4) * 2

    with pytest.warns(OnnxExporterWarning, match=r"of input 'rows' is static .* 3: the model needs .*shape\[0\]"):
        captured = capture(
            parse_request(Fn(fixed).eval(), t(3, 4), input_names=["rows"], dynamic_shapes=({0: dim, 1: 4},))
        )
    (specialized,) = captured.specialized
    assert (specialized.input, specialized.axis, specialized.name, specialized.size) == ("rows", 0, name, 3)


def test_specialised_by_a_branch_names_the_line():
    def branch(x):
        return x * 2 if x.shape[0] == 3 else x

    with pytest.warns(OnnxExporterWarning, match=r"needs shape\[0\] == 3 \(.*test_capture.py:\d+ in branch\)"):
        capture(parse_request(Fn(branch).eval(), t(3, 4), dynamic_shapes=({0: "n"},)))


def test_dim_that_is_another_is_relaxed():
    captured = run(lambda x, y: x[1:] + y, t(5), t(4), dynamic_shapes=({0: BATCH}, {0: SEQ}))
    assert sorted(captured.symbol_names.values()) == ["batch", "seq"]


def test_dim_dynamic_that_cannot_be():
    with pytest.raises(CaptureError, match=r"specialized it to be a constant \(3\).*change dynamic_shapes") as caught:
        run(lambda x: x.reshape(3, 4), t(3, 4), dynamic_shapes=({0: Dim.DYNAMIC},))
    assert "\n" not in str(caught.value)


def test_strict_mends():
    def through_numpy(x):
        return torch.from_numpy(x.numpy() * 2)

    captured = run(through_numpy, t(3))
    assert captured.strategy == "torch.export(strict=True)"


def shape_mismatch(x):
    return x @ torch.ones(7, 7)


def missing_key(x):
    return {"a": x}["b"]


def value_branch(x):
    return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (shape_mismatch, r"Fn: \w*Error: .*test_capture.py:\d+: return x @ torch.ones\(7, 7\)\); see that the model"),
        (missing_key, r"KeyError: 'b' \(.*test_capture.py:\d+: return {\"a\": x}\[\"b\"\]\)"),
        (value_branch, r"data-dependent.*: return x if x.sum\(\) > 0 else -x\); write control flow .*torch.cond"),
    ],
)
def test_failures_show_the_users_line(function, message):
    with pytest.raises(CaptureError, match=message) as caught:
        run(function, t(3, 4), dynamic_shapes=({0: "n"},))
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None


def test_given_program():
    program = torch.export.export(Fn(torch.relu).eval(), (t(3, 4),), dynamic_shapes={"x": {0: Dim.AUTO}})
    captured = run(program, dynamic_shapes=({0: "n"},))
    assert captured.exported_program is program
    assert captured.strategy == "given"
    assert shapes(captured) == [("n", "4")]
    with pytest.warns(OnnxExporterWarning, match=r"Axis 1 \('m'\) of input 'x' is static with size 4"):
        capture(parse_request(program, dynamic_shapes=({1: "m"},)))


def test_training_mode_warns_and_stays():
    model = torch.nn.Linear(2, 2)
    with pytest.warns(OnnxExporterWarning, match="Linear is in training mode"):
        capture(parse_request(model, t(3, 2)))
    assert model.training


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrences_stay_whole(kind):
    kernel = torch.ops.aten.lstm.input.py_kernels[torch._C.DispatchKey.CompositeImplicitAutograd]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # not even of the list of weights that such a module keeps
        captured = run(getattr(torch.nn, kind)(4, 5), t(7, 3, 4), dynamic_shapes=({0: "seq", 1: "batch"},))
    assert shapes(captured) == [("seq", "batch", "4")]
    assert torch.ops.aten.lstm.input.py_kernels[torch._C.DispatchKey.CompositeImplicitAutograd] is kernel
    calls = [node for node in captured.exported_program.graph.nodes if node.op == "call_function"]
    assert sum("input" in str(node.target) for node in calls) == 1


def test_is_in_onnx_export_in_strict_mode():
    def look(x):
        return torch.from_numpy(x.numpy() * 2) if is_in_onnx_export() else x

    captured = run(look, t(3))
    assert captured.strategy == "torch.export(strict=True)"
    assert any(node.op == "call_function" for node in captured.exported_program.graph.nodes)


def test_is_in_onnx_export():
    seen = []

    def look(x):
        seen.append(is_in_onnx_export())
        return x

    run(look, t(2))
    assert set(seen) == {True}
    assert not is_in_onnx_export()
