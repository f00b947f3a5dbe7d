"""Every spelling gives the request it means; every bad one gives one clear sentence."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np
import pytest
import torch
from torch.export import AdditionalInputs, Dim, ShapesCollection

from fx_onnx.capture.request import parse_request
from fx_onnx.core.errors import ArgumentError

A = Dim.AUTO
BATCH, SEQ = Dim("batch"), Dim("seq")
Pair = collections.namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass
class Cache:
    key: torch.Tensor
    value: torch.Tensor


torch.export.register_dataclass(Cache, serialized_type_name="test_arguments.Cache")


class Two(torch.nn.Module):
    def forward(self, x, y=None, *, flag=True, **extra):
        return x if y is None else x + y


class One(torch.nn.Module):
    def forward(self, tree):
        return tree


class Many(torch.nn.Module):
    def forward(self, *xs):
        return sum(xs)


class MLP(torch.nn.Module):
    def forward(self, tensor_input, dict_input, list_input):
        return tensor_input + dict_input["tensor_x"] + list_input[0]


def t(*shape):
    return torch.randn(*shape)


def axes(request):
    return [dict(tensor.axes) for tensor in request.inputs]


X, Y = t(3, 4), t(3, 4)
NAMED = [{0: "batch"}, {0: "batch", 1: "seq"}]
TORCH = {"x": {0: A}, "y": {0: A, 1: A}}


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [(X, None), ((X,), None), ((X, {}), None), (({"x": X},), None), ((), {"x": X}), ((), {"x": X, "flag": False})],
)
def test_args(args, kwargs):
    request = parse_request(Two(), args, kwargs, dynamic_shapes={"x": {0: "batch"}})
    assert [leaf is X for leaf in (*request.args, request.kwargs.get("x"))].count(True) == 1
    assert axes(request) == [{0: "batch"}]
    assert request.dynamic_shapes["x"] == {0: A}


@pytest.mark.parametrize(
    ("spec", "expected", "for_torch"),
    [
        (({0: "batch"}, {0: "batch", 1: "seq"}), NAMED, TORCH),
        ([{0: "batch"}, {0: "batch", 1: "seq"}], NAMED, TORCH),
        ((["batch", None], ["batch", "seq"]), NAMED, TORCH),
        ((("batch", Dim.STATIC), ("batch", "seq")), NAMED, TORCH),
        ({"y": {0: "batch", 1: "seq"}, "x": {0: "batch"}}, NAMED, TORCH),
        ({"x": {-2: "batch"}, "y": {0: "batch", -1: "seq"}}, NAMED, TORCH),
        ({"first": {0: "batch"}, "second": {0: "batch", 1: "seq"}}, NAMED, TORCH),
        ({"first": {0: "batch"}, "y": {0: "batch", 1: "seq"}}, NAMED, TORCH),
        (({0: A}, None), [{0: None}, {}], {"x": {0: A}, "y": {}}),
        ({"x": {0: Dim.DYNAMIC}}, [{0: None}, {}], {"x": {0: Dim.DYNAMIC}, "y": {}}),
        (({0: BATCH}, {0: BATCH, 1: SEQ}), NAMED, {"x": {0: BATCH}, "y": {0: BATCH, 1: SEQ}}),
        (({0: "batch"}, {0: BATCH, 1: 4}), [{0: "batch"}, {0: "batch"}], {"x": {0: A}, "y": {0: BATCH, 1: 4}}),
        (None, [{}, {}], None),
        ((), [{}, {}], None),
        ({}, [{}, {}], None),
        ((None, None), [{}, {}], None),
    ],
)
@pytest.mark.parametrize("given", ["args", "kwargs", "mixed"])
def test_dynamic_shapes(spec, expected, for_torch, given):
    args, kwargs = {"args": ((X, Y), None), "kwargs": ((), {"x": X, "y": Y}), "mixed": ((X,), {"y": Y})}[given]
    request = parse_request(Two(), args, kwargs, dynamic_shapes=spec, input_names=["first", "second"])
    assert axes(request) == expected
    assert request.dynamic_shapes == for_torch


def test_keywords_out_of_order_keep_the_callers_order():
    request = parse_request(Two(), (), {"y": Y, "x": X}, dynamic_shapes=({0: "a"}, {1: "b"}))
    assert [tensor.path for tensor in request.inputs] == ["y", "x"]
    assert axes(request) == [{1: "b"}, {0: "a"}]
    assert request.dynamic_shapes == {"x": {0: A}, "y": {1: A}}


@pytest.mark.parametrize("spec", [{"z": {0: "n"}}, {"extra": {"z": {0: "n"}}}])
def test_var_keywords_stand_under_their_own_names(spec):
    request = parse_request(Two(), (X,), {"z": Y}, dynamic_shapes=spec)
    assert axes(request) == [{}, {0: "n"}]
    assert request.dynamic_shapes == {"x": {}, "z": {0: A}}


def test_var_positional():
    request = parse_request(Many(), (X, Y), dynamic_shapes={"xs": ({0: "n"}, None)})
    assert request.dynamic_shapes == {"xs": ({0: A}, {})}


@pytest.mark.parametrize(
    ("tree", "spec", "for_torch", "paths"),
    [
        ({"a": X, "b": [Y, None]}, {"a": {0: "n"}}, {"a": {0: A}, "b": [{}, None]}, ["tree['a']", "tree['b'][0]"]),
        ({"b": X, "a": Y}, {"a": {0: "n"}, "b": None}, {"b": {}, "a": {0: A}}, ["tree['b']", "tree['a']"]),
        ([(X, Y), 3, "s"], [({0: "n"}, None), None, None], [({0: A}, {}), None, None], ["tree[0][0]", "tree[0][1]"]),
        (Pair(X, Y), Pair({0: "n"}, None), Pair({0: A}, {}), ["tree['left']", "tree['right']"]),
        (Cache(X, Y), [{0: "n"}, None], [{0: A}, {}], ["tree['key']", "tree['value']"]),
        (Cache(X, Y), {"value": {1: "n"}}, [{}, {1: A}], ["tree['key']", "tree['value']"]),
    ],
)
def test_nested(tree, spec, for_torch, paths):
    request = parse_request(One(), (tree, {}), dynamic_shapes=(spec,))
    assert [tensor.path for tensor in request.inputs] == paths
    assert request.dynamic_shapes == {"tree": for_torch}


def test_nested_leaf_by_input_name():
    request = parse_request(One(), ([X, {"k": Y}],), input_names=["p", "q"], dynamic_shapes={"q": {0: "n"}})
    assert request.dynamic_shapes == {"tree": [{}, {"k": {0: A}}]}
    assert axes(request) == [{}, {0: "n"}]


def test_issue_mlp():
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


def test_shapes_collection():
    shapes = ShapesCollection()
    shapes[Y] = {0: "batch"}
    request = parse_request(Two(), (X, Y), dynamic_shapes=shapes)
    assert axes(request) == [{}, {0: "batch"}]


def test_additional_inputs_pass_through():
    shapes = AdditionalInputs()
    shapes.add((t(5, 4), t(5, 4)))
    request = parse_request(Two(), (X, Y), dynamic_shapes=shapes)
    assert request.dynamic_shapes is shapes
    assert axes(request) == [{0: None}, {0: None}]


def test_dynamic_int_is_an_input_with_a_name():
    class Scaled(torch.nn.Module):
        def forward(self, n, x):
            return x * n

    request = parse_request(Scaled(), (3, X), dynamic_shapes=(Dim.DYNAMIC, {0: "n"}), input_names=["n", "x"])
    assert request.dynamic_shapes == {"n": Dim.DYNAMIC, "x": {0: A}}
    assert axes(request) == [{0: "n"}]


@pytest.mark.parametrize(
    ("dynamic_axes", "expected", "outputs"),
    [
        ({"x": {0: "n"}}, [{0: "n"}, {}], {}),
        ({"first": {0: "n"}, "second": {-1: "m"}}, [{0: "n"}, {1: "m"}], {}),
        ({"x": [0, 1]}, [{0: "x_dynamic_axes_1", 1: "x_dynamic_axes_2"}, {}], {}),
        ({"sum": [0]}, [{}, {}], {"sum": {0: "sum_dynamic_axes_1"}}),
        ({"y": {0: "n"}, "sum": {0: "n"}}, [{}, {0: "n"}], {"sum": {0: "n"}}),
        ({}, [{}, {}], {}),
    ],
)
def test_dynamic_axes(dynamic_axes, expected, outputs):
    names = {"input_names": ["first", "second"], "output_names": ["sum"]}
    request = parse_request(Two(), (X, Y), dynamic_axes=dynamic_axes, **names)
    assert axes(request) == expected
    assert request.output_axes == outputs


def test_input_names_win_over_parameters_in_dynamic_axes_only():
    swapped = {"input_names": ["y", "x"]}
    assert axes(parse_request(Two(), (X, Y), dynamic_axes={"y": {0: "n"}}, **swapped)) == [{0: "n"}, {}]
    assert axes(parse_request(Two(), (X, Y), dynamic_shapes={"y": {0: "n"}}, **swapped)) == [{}, {0: "n"}]


def test_tensors_with_one_storage_are_separated():
    request = parse_request(Two(), (X, X), dynamic_shapes=({0: "n"}, {0: "n"}))
    assert request.args[0] is X
    assert request.args[1] is not X
    assert torch.equal(request.args[1], X)


@pytest.mark.parametrize("spec", [({0: "n"}, {0: "n"}), {"x": {0: "n"}, "y": {0: "n"}}, {"p": {0: "n"}, "q": {0: "n"}}])
def test_exported_program_is_only_renamed(spec):
    program = torch.export.export(Two(), (X, Y), dynamic_shapes={"x": {0: A}, "y": {0: A}})
    request = parse_request(program, dynamic_shapes=spec, input_names=["p", "q"])
    assert request.model is program
    assert request.dynamic_shapes is None
    assert axes(request) == [{0: "n"}, {0: "n"}]
    assert request.args[0] is X


def _bad(message, *args, model=None, **options):
    return pytest.param(model if model is not None else Two(), args, options, message, id=message[:40])


@pytest.mark.parametrize(
    ("model", "args", "options", "message"),
    [
        _bad("model.module", X, model=torch.nn.DataParallel(Two())),
        _bad("ScriptModule cannot be exported", X, model=torch.jit.script(torch.nn.ReLU())),
        _bad("ScriptFunction cannot", X, model=torch.jit.trace(torch.relu, X)),
        _bad("plain callable; wrap it", X, model=torch.relu),
        _bad("is the class Two; give an instance", X, model=Two),
        _bad("not int", X, model=3),
        _bad("must be a tuple of the arguments or one tensor, not list", [X]),
        _bad("must be a tuple of the arguments or one tensor, not dict", {"x": X}),
        _bad("with strings as keys", (X, {0: Y})),
        _bad("do not fit forward", ()),
        _bad("follow it by {}", (X, {"tree": Y}), model=One()),
        _bad(
            "args[0] is a numpy.ndarray, which torch.export does not take; convert it with torch.from_numpy",
            (np.zeros(3),),
        ),
        _bad("kwargs['y'] is a builtins.object", (X,), {"y": object()}),
        _bad("args[0][1] is a builtins.complex", ([X, 1j],), model=One()),
        _bad("x has 2 axes, so its axis 2", X, dynamic_shapes={"x": {2: "n"}}),
        _bad("x has 2 axes, so its axis -3", X, dynamic_shapes={"x": {-3: "n"}}),
        _bad("x has 2 axes, so its axis 'n'", X, dynamic_shapes={"x": {"n": 0}}),
        _bad("x has 2 axes, but 1 dims", X, dynamic_shapes={"x": ["n"]}),
        _bad("Axis 1 of x is given twice", X, dynamic_shapes={"x": {1: "n", -1: "m"}}),
        _bad("must be a name, a Dim or an int, not 2.5", X, dynamic_shapes={"x": {1: 2.5}}),
        _bad("must be a dict or a list, not 'batch'", X, dynamic_shapes={"x": "batch"}),
        _bad("y is a int, not a tensor", (X, 3), dynamic_shapes={"y": {0: "n"}}),
        _bad("y is a NoneType, not a tensor", (X, None), dynamic_shapes={"y": {0: "n"}}),
        _bad("name 'z', which is none of the inputs x, p", X, dynamic_shapes={"z": None}, input_names=["p"]),
        _bad("name 0, which is none", X, dynamic_shapes={0: "n"}, input_names=["p"]),
        _bad("has 2 entries, but the forward is called with 1 arguments: x", X, dynamic_shapes=(None, None)),
        _bad("not a dict, a tuple"[6:], X, dynamic_shapes="batch"),
        _bad("must match its 2 parts", ([X, Y],), model=One(), dynamic_shapes=([None],)),
        _bad("of tree name c, but it has a, b", ({"a": X, "b": Y}, {}), model=One(), dynamic_shapes=({"c": None},)),
        _bad("stands for 3 at x.shape[0] and for 4 at x.shape[1]", X, dynamic_shapes={"x": {0: "n", 1: "n"}}),
        _bad("stands for 3 at x.shape[0] and for 2 at y", (X, t(2, 4)), dynamic_shapes=({0: BATCH}, {0: BATCH})),
        _bad("these repeat: a", (X, Y), input_names=["a", "a"]),
        _bad("these repeat: x", X, input_names=["x"], output_names=["x"]),
        _bad("input_names must be a sequence of non-empty strings", X, input_names="x"),
        _bad("output_names must be a sequence of non-empty strings", X, output_names=["a", 3]),
        _bad("has 3 names, but the model has 2 inputs: x, y", (X, Y), input_names=["a", "b", "c"]),
        _bad("has 2 names, but the model has 1 inputs: x", (X, None), input_names=["a", "b"]),
        _bad("give dynamic_shapes alone", X, dynamic_shapes={"x": {0: "n"}}, dynamic_axes={"x": [0]}),
        _bad("name 'out', which is none", X, dynamic_axes={"out": [0]}),
        _bad("['x'] must map axes to dim names", X, dynamic_axes={"x": 0}),
        _bad("['x'] must map axes to dim names or", X, dynamic_axes={"x": {0: 1}}),
        _bad("['x'] must map axes to dim names or be", X, dynamic_axes={"x": ["batch"]}),
    ],
)
def test_bad_input(model, args, options, message):
    with pytest.raises(ArgumentError) as caught:
        parse_request(model, *args, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
