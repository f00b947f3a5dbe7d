"""Arguments are assigned to the parameters of the forward, in the order of the graph's inputs."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.export import Dim

import fx_onnx
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.findings import collect_findings
from fx_onnx.requests.forward_parameters import module_parameters, program_parameters, sorted_by_signature
from fx_onnx.requests.request import parse_request
from tests.capture.sample_modules import One, Two, X, Y, axes

A = Dim.AUTO


class Caller(torch.nn.Module):
    def __call__(self, **named):
        return super().__call__(*named.values())

    def forward(self, *inputs):
        return inputs[0]


class Many(torch.nn.Module):
    def forward(self, *xs):
        return sum(xs)


def test_keywords_keep_the_order_of_the_call():
    request = parse_request(Two(), (), {"y": Y, "x": X}, dynamic_shapes=({0: "a"}, {1: "b"}))
    assert [tensor.path for tensor in request.inputs] == ["y", "x"]
    assert axes(request) == [{1: "b"}, {0: "a"}]
    assert request.dynamic_shapes == {"x": {0: A}, "y": {1: A}}


@pytest.mark.parametrize("spec", [{"z": {0: "n"}}, {"extra": {"z": {0: "n"}}}])
def test_arguments_of_var_keyword_have_their_own_names(spec):
    request = parse_request(Two(), (X,), {"z": Y}, dynamic_shapes=spec)
    assert axes(request) == [{}, {0: "n"}]
    assert request.dynamic_shapes == {"x": {}, "z": {0: A}}


def test_arguments_of_var_positional_are_one_tuple():
    request = parse_request(Many(), (X, Y), dynamic_shapes={"xs": ({0: "n"}, None)})
    assert request.dynamic_shapes == {"xs": ({0: A}, {})}


def test_values_follow_the_signature_and_inputs_follow_the_call():
    parameters = module_parameters(Two(), (X,), {"z": Y, "flag": False})
    assert list(parameters.values) == ["x", "flag", "z"]
    assert parameters.input_order == ("x", "z", "flag")
    assert parameters.var_keyword == "extra"


def test_an_exported_program_has_symbolic_sizes():
    program = torch.export.export(Two(), (X, Y), dynamic_shapes={"x": {0: A}, "y": {0: A}})
    parameters = program_parameters(program)
    assert parameters.input_order == ("x", "y")
    assert isinstance(parameters.values["x"].shape[0], torch.SymInt)
    assert parameters.values["x"].shape[1] == 4


class Images(torch.nn.Module):
    def forward(self, images: list[torch.Tensor], targets: list[torch.Tensor] | None = None) -> torch.Tensor:
        return images[0]


class Typed(torch.nn.Module):
    def forward(self, x: torch.FloatTensor | None = None, y: torch.Tensor | None = None) -> Any:
        return x


@pytest.mark.parametrize(
    ("model", "given", "args", "finding"),
    [
        (Images(), [X], ([X],), "is one argument"),
        (Images(), [X, Y, X], ([X, Y, X],), None),
        (Many(), [X, Y], ([X, Y],), "is one argument"),
        (Two(), [X, {"y": Y}], (X,), None),
        (torch.nn.Bilinear(4, 4, 2), [X, X], (X, X), "unpacked"),
        (Typed(), [X, Y], (X, Y), "unpacked"),
        (Typed(), [], (), None),
    ],
)
def test_a_list_is_one_argument_where_the_forward_takes_one(model, given, args, finding):
    with collect_findings(as_warning=False) as findings:
        found = parse_request(model, given).args
    assert repr(found) == repr(args)
    assert [each.text for each in findings if finding is None or finding not in each.text] == []
    assert len(findings) == (finding is not None)


def test_a_list_for_a_program_has_the_structure_of_the_capture():
    one = torch.export.export(Images(), ([X, Y],))
    assert isinstance(parse_request(one, [X, Y]).args[0], list)
    assert len(parse_request(torch.export.export(Two(), (X, Y)), [X, Y]).args) == 2


def _bad(message, *args, model=None, **options):
    return pytest.param(model if model is not None else Two(), args, options, message, id=message[:40])


@pytest.mark.parametrize(
    ("model", "args", "options", "message"),
    [
        _bad("do not fit forward", ()),
        _bad("add {} after it", (X, {"tree": Y}), model=One()),
        _bad("an export calls forward and not Caller.__call__", (), {"x": X}, model=Caller()),
        _bad("; 'inpt' is given by keyword; did you mean 'input'?", (), {"inpt": X}, model=torch.nn.Linear(4, 4)),
    ],
)
def test_arguments_that_do_not_fit_the_forward(model, args, options, message):
    with pytest.raises(ArgumentError) as caught:
        parse_request(model, *args, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


class Keywords(torch.nn.Module):
    def forward(self, a, b=None, **others):
        return a


def test_keywords_in_the_order_of_the_signature():
    given = {"z": 1, "b": 2, "y": 3, "a": 4}
    assert list(sorted_by_signature(Keywords(), given)) == ["a", "b", "z", "y"]


def test_the_torchscript_exporter_orders_inputs_by_the_signature():
    """So input_names of a call with dynamo=False go to the inputs that the caller means."""
    x = torch.ones(2)

    class Two(torch.nn.Module):
        def forward(self, first, second):
            return first - second

    for dynamo, names in ((False, ["first", "second"]), (True, ["second", "first"])):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = fx_onnx.export(Two().eval(), ({"second": x, "first": x},), dynamo=dynamo)
        assert [value.name for value in program.model.graph.inputs] == names
