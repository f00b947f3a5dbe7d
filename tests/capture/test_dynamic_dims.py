"""Dims keep the user's names; a dim that becomes static is reported with the reason."""

from __future__ import annotations

import io

import pytest
import torch
from torch.export import Dim

from fx_onnx.capture.capture import capture
from fx_onnx.messages.errors import OnnxExporterWarning
from fx_onnx.messages.findings import collect_findings
from fx_onnx.requests.request import parse_request
from tests.capture.captures import run, shapes
from tests.capture.sample_modules import Function, t

BATCH, SEQ = Dim("batch"), Dim("seq")


@pytest.mark.parametrize(
    ("function", "args", "spec", "expected"),
    [
        (torch.relu, (t(3, 4),), ({0: "batch"},), [("batch", "4")]),
        (torch.relu, (t(3, 4),), ({0: BATCH, 1: SEQ},), [("batch", "seq")]),
        (torch.add, (t(3, 4), t(3, 4)), ({0: "batch"}, {0: "batch"}), [("batch", "4")] * 2),
        (torch.matmul, (t(3, 4), t(4, 5)), ({1: "k"}, {0: "k", 1: "n"}), [("3", "k"), ("k", "n")]),
        (lambda x, y: x[::2] + y, (t(6), t(3)), ({0: 2 * BATCH}, {0: BATCH}), [("2*batch",), ("batch",)]),
        (
            lambda x, y: torch.cat([x.reshape(-1, 2), y], 1),
            (t(6), t(3, 2)),
            ({0: "long"}, {0: "n"}),
            [("long",), ("n", "2")],
        ),
        (lambda x, y, z: x + y + z, (t(3), t(3)), {"x": {0: "n"}, "y": {0: "n"}, "z": {0: "n"}}, [("n",)] * 3),
    ],
)
def test_names(function, args, spec, expected):
    kwargs = {"z": t(3)} if isinstance(spec, dict) else None
    captured = run(function, *args, kwargs=kwargs, dynamic_shapes=spec)
    assert shapes(captured) == expected
    assert captured.specialized == ()


def test_an_expression_has_the_users_name():
    model = Function(lambda x, y: x + torch.cat([y, y.new_zeros(2)])).eval()
    with pytest.warns(OnnxExporterWarning, match="makes the dim 'long' equal to n \\+ 2"):
        captured = capture(parse_request(model, (t(6), t(4)), dynamic_shapes=({0: "long"}, {0: "n"})))
    symbol = next(expression for expression, name in captured.symbol_names.items() if name == "n")
    assert captured.symbol_names == {f"{symbol} + 2": "long", symbol: "n"}


def test_dims_without_a_name_have_no_entry():
    assert run(torch.relu, t(3, 4), dynamic_shapes=({0: Dim.AUTO, 1: Dim.DYNAMIC},)).symbol_names == {}


def test_dims_of_an_exported_program_have_the_names_of_its_dims():
    """A file does not keep them, so that a dim is named after the first input that has it."""
    model, dims = Function(lambda x, y: x.sum(1) + y), {"x": {0: BATCH, 1: Dim.AUTO}, "y": {0: BATCH}}
    program = torch.export.export(model, (t(3, 4), t(3)), dynamic_shapes=dims)
    assert shapes(capture(parse_request(program))) == [("batch", "x_dim_1"), ("batch",)]
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file)
    assert shapes(capture(parse_request(loaded))) == [("x_dim_0", "x_dim_1"), ("x_dim_0",)]
    named = parse_request(loaded, input_names=["x.0"], dynamic_shapes=({1: "x_0_dim_0"}, None))
    assert shapes(capture(named)) == [("x_0_dim_0_1", "x_0_dim_0"), ("x_0_dim_0_1",)]


@pytest.mark.parametrize(
    ("function", "dim", "id"),
    [
        (lambda x: x + torch.ones(5, 4), Dim.AUTO, "FX1201"),
        (lambda x: x * int(x.shape[0]), Dim.AUTO, "FX1201"),
        (lambda x: x + 1 if x.shape[0] > 3 else x, Dim.AUTO, "FX1202"),
        (lambda x: x + 1 if x.shape[0] > 3 else x, Dim.DYNAMIC, "FX1202"),
        (lambda x: x + 1 if x.shape[0] > 3 else x, Dim("n", min=4), None),
        (lambda x: x + 1, Dim.AUTO, None),
    ],
)
def test_what_became_of_the_dims_of_an_exported_program(function, dim, id):
    program = torch.export.export(Function(function), (torch.zeros(5, 4),), dynamic_shapes={"x": {0: dim}})
    with collect_findings(as_warning=False) as findings:
        capture(parse_request(program))
    assert [finding.id for finding in findings] == [id] * (id is not None)


def test_a_static_exported_program_must_be_captured_again():
    program = torch.export.export(Function(torch.relu), (t(3, 4),))
    with pytest.warns(OnnxExporterWarning, match="was captured with this size; capture it again"):
        capture(parse_request(program, dynamic_shapes=({0: "n"},)))


@pytest.mark.parametrize(("dim", "name"), [("n", "n"), (BATCH, "batch"), (Dim.AUTO, None)])
def test_a_dim_specialized_by_a_reshape(dim, name):
    def fixed(x):
        return x.reshape(3, 4) * 2

    with pytest.warns(OnnxExporterWarning, match=r"of input 'rows' is static .* 3: the model needs .*shape\[0\]"):
        captured = capture(
            parse_request(Function(fixed).eval(), t(3, 4), input_names=["rows"], dynamic_shapes=({0: dim, 1: 4},))
        )
    (specialized,) = captured.specialized
    assert (specialized.input, specialized.axis, specialized.name, specialized.size) == ("rows", 0, name, 3)


def test_a_dim_specialized_by_a_branch():
    def branch(x):
        return x * 2 if x.shape[0] == 3 else x

    with pytest.warns(OnnxExporterWarning, match=r"needs shape\[0\] == 3 \(.*_dims.py:\d+: return x \* 2 if"):
        capture(parse_request(Function(branch).eval(), t(3, 4), dynamic_shapes=({0: "n"},)))


def test_one_name_for_two_dims_of_an_exported_program_is_that_of_the_first():
    dims = {"x": {0: Dim("a")}, "y": {0: Dim("b")}}
    program = torch.export.export(Function(lambda x, y: x @ y.T), (t(3, 4), t(5, 4)), dynamic_shapes=dims)
    with pytest.warns(OnnxExporterWarning, match=r"y\.shape\[0\] is 'b', not 'n'"):
        captured = capture(parse_request(program, dynamic_shapes={"x": {0: "n"}, "y": {0: "n"}}))
    assert shapes(captured) == [("n", "4"), ("b", "4")]
