"""Every form of the arguments gives the intended request; wrong arguments raise an error of one sentence."""

from __future__ import annotations

from collections import UserDict

import numpy as np
import pytest
import torch
from torch.export import Dim
from torch.nn.utils.rnn import PackedSequence

import fx_onnx
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.requests.request import parse_request
from tests.capture.sample_modules import One, Two, X, Y, axes, t

A = Dim.AUTO


class MLP(torch.nn.Module):
    def forward(self, tensor_input, dict_input, list_input):
        return tensor_input + dict_input["tensor_x"] + list_input[0]


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [(X, None), ((X,), None), ((X, {}), None), (({"x": X},), None), ((), {"x": X}), ((), {"x": X, "flag": False})],
)
def test_each_form_of_args(args, kwargs):
    request = parse_request(Two(), args, kwargs, dynamic_shapes={"x": {0: "batch"}})
    assert [leaf is X for leaf in (*request.args, request.kwargs.get("x"))].count(True) == 1
    assert axes(request) == [{0: "batch"}]
    assert request.dynamic_shapes["x"] == {0: A}


class TakesDict(torch.nn.Module):
    def forward(self, inputs):
        return inputs["x"] + inputs["y"]


class TakesDictLast(torch.nn.Module):
    def forward(self, x, inputs, scale=1.0):
        return (x + inputs["x"]) * scale


@pytest.mark.parametrize(
    ("model", "args"),
    [(TakesDict(), ({"x": X, "y": Y},)), (TakesDict(), ({"x": X, "y": Y}, {})), (TakesDictLast(), (X, {"y": Y}))],
)
def test_a_dict_whose_keys_are_no_parameters_is_an_argument(model, args):
    request = parse_request(model, args)
    assert request.kwargs == {}
    assert isinstance(request.args[-1], dict)


def test_a_dict_with_a_key_that_is_a_parameter_holds_keyword_arguments():
    request = parse_request(TakesDictLast(), (X, {"inputs": {"x": Y}, "scale": 2.0}))
    assert request.args == (X,)
    assert list(request.kwargs) == ["inputs", "scale"]


def test_a_misspelled_keyword_is_not_taken_for_an_optional_argument():
    with pytest.raises(ArgumentError, match="unexpected keyword argument 'scales'"):
        parse_request(One(), (X, {"scales": Y}))


@pytest.mark.parametrize("cls", [dict, UserDict])
def test_a_dict_alone_holds_keyword_arguments(cls):
    given = cls({"x": X, "y": Y})
    for args in (given, (given,), [given]):
        request = parse_request(Two(), args)
        assert (request.args, list(request.kwargs)) == ((), ["x", "y"])


def test_a_forward_that_takes_one_dict_exports_by_its_keys():
    program = fx_onnx.export(TakesDict().eval(), ({"x": X, "y": Y},), dynamic_shapes=({"x": {0: "n"}, "y": {0: "n"}},))
    torch.testing.assert_close(program({"x": X, "y": Y})[0], X + Y)
    assert [value.shape for value in program.model.graph.inputs] == [("n", *X.shape[1:])] * 2


def test_nested_arguments_with_names_for_all_inputs():
    args = (t(2, 8), {"tensor_x": t(2, 8)}, [t(2, 8)])
    spec = ({0: "batch_size"}, {"tensor_x": {0: "batch_size"}}, [{0: "batch_size"}])
    names = ["tensor_input", "tensor_x", "list_input_index_0"]
    request = parse_request(MLP(), args, dynamic_shapes=spec, input_names=names, output_names=["output"])
    assert request.kwargs == {}
    assert axes(request) == [{0: "batch_size"}] * 3
    assert request.input_names == tuple(names)
    assert request.output_names == ("output",)
    expected = {"tensor_input": {0: A}, "dict_input": {"tensor_x": {0: A}}, "list_input": [{0: A}]}
    assert request.dynamic_shapes == expected


class Optional(torch.nn.Linear):
    """A forward with an argument that is a constant."""

    def forward(self, x, flag=True):
        return super().forward(x)


def test_names_for_constants_are_a_warning():
    """They name weights, as in torch's TorchScript exporter; without constants, this is what the caller means."""
    model, x = Optional(3, 2).eval(), t(2, 3)
    parse_request(model, (x,), input_names=["a", "w"])
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="gives 'b' to the weight 'weight', because the constant flag"):
        request = parse_request(model, (x, True), input_names=["a", "b"])
    assert request.weights.new == ("b",)


@pytest.mark.parametrize("option", ["dynamic_axes", "dynamic_shapes"])
def test_a_weight_has_no_dynamic_sizes(option):
    with pytest.raises(ArgumentError, match="'w', which input_names gives to a weight, because the inputs are x;"):
        parse_request(Optional(3, 2).eval(), (t(2, 3),), input_names=["a", "w"], **{option: {"w": {0: "n"}}})


@pytest.mark.parametrize("spec", [({0: "n"}, {0: "n"}), {"x": {0: "n"}, "y": {0: "n"}}, {"p": {0: "n"}, "q": {0: "n"}}])
def test_dims_of_an_exported_program_only_get_names(spec):
    program = torch.export.export(Two(), (X, Y), dynamic_shapes={"x": {0: A}, "y": {0: A}})
    request = parse_request(program, dynamic_shapes=spec, input_names=["p", "q"])
    assert request.model is program
    assert axes(request) == [{0: "n"}, {0: "n"}]
    assert request.args[0] is X


LINEAR = torch.nn.Linear(4, 4)
PACKED = torch.zeros(4, 2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)


def _bad(message, *args, model=None, **options):
    return pytest.param(model if model is not None else Two(), args, options, message, id=message[:40])


@pytest.mark.parametrize(
    ("model", "args", "options", "message"),
    [
        _bad("plain callable; wrap it", X, model=torch.relu),
        _bad("is the class Two; give an instance", X, model=Two),
        _bad("not int", X, model=3),
        _bad("'weight' of the model is not initialized", X, model=torch.nn.LazyLinear(2)),
        _bad("must be a tuple of the arguments, a list, one tensor, or a dict of keyword arguments", frozenset({X})),
        _bad("with strings as keys", (X, {0: Y})),
        _bad(
            "args[0] is a numpy.ndarray, which an input of an ONNX model cannot be; convert it with torch.from_numpy",
            (np.zeros(3),),
        ),
        _bad("kwargs['y'] is a builtins.object", (X,), {"y": object()}),
        _bad(
            "args[1] is a torch.nn.modules.linear.Linear, which an input of an ONNX model cannot be; make it an "
            "attribute of the module.",
            (X, LINEAR),
        ),
        _bad(
            "args[0] is a torch.nn.utils.rnn.PackedSequence, which an input of an ONNX model cannot be; give the "
            "padded sequences and their lengths",
            (PackedSequence(torch.ones(3, 4), torch.tensor([1, 1, 1])),),
            model=torch.nn.LSTM(4, 5),
        ),
        _bad("args[0][1] is a builtins.complex", ([X, 1j],), model=One()),
        _bad("float4_e2m1fn_x2, whose elements torch does not copy; pass its bytes", (PACKED, Y)),
        _bad("repeated: a", (X, Y), input_names=["a", "a"]),
        _bad("repeated: x", X, input_names=["x"], output_names=["x"]),
        _bad("'weight' in input_names or output_names is the", X, model=LINEAR, input_names=["weight"]),
        _bad("'bias' in input_names or output_names is the", X, model=LINEAR, output_names=["bias"]),
        _bad("input_names must be a sequence of names", X, input_names="x"),
        _bad("A name in output_names must be a string that is not empty", X, output_names=["a", 3]),
        _bad("give dynamic_shapes alone", X, dynamic_shapes={"x": {0: "n"}}, dynamic_axes={"x": [0]}),
    ],
)
def test_wrong_arguments_raise_one_sentence(model, args, options, message):
    with pytest.raises(ArgumentError) as caught:
        parse_request(model, *args, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_many_output_names_for_a_captured_program():
    program = torch.export.export(Two(), (X, Y))
    with pytest.raises(ArgumentError, match="output_names has 2 names, but the model has 1 output"):
        parse_request(program, output_names=["a", "b"])


def test_a_write_in_a_captured_program_may_be_an_output():
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count += 1
            return x + self.count

    program = torch.export.export(Counts(), (X,))
    exported = fx_onnx.export(program, output_names=["y", "count_out"])
    assert [value.name for value in exported.model.graph.outputs] == ["y", "count_out"]
    with pytest.raises(ArgumentError, match="output_names has 3 names"):
        fx_onnx.export(program, output_names=["y", "count_out", "more"])
