"""Every form of dynamic_shapes matches the arguments as torch.export does; a wrong one raises one sentence."""

from __future__ import annotations

import pytest
import torch
from torch.export import AdditionalInputs, Dim, ShapesCollection

from fx_onnx.messages.errors import ArgumentError
from fx_onnx.requests.request import parse_request
from tests.capture.sample_modules import Cache, One, Pair, Two, X, Y, axes, t

A = Dim.AUTO
BATCH, SEQ = Dim("batch"), Dim("seq")
NAMED = [{0: "batch"}, {0: "batch", 1: "seq"}]
TORCH = {"x": {0: A}, "y": {0: A, 1: A}}


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
def test_each_form(spec, expected, for_torch, given):
    args, kwargs = {"args": ((X, Y), None), "kwargs": ((), {"x": X, "y": Y}), "mixed": ((X,), {"y": Y})}[given]
    request = parse_request(Two(), args, kwargs, dynamic_shapes=spec, input_names=["first", "second"])
    assert axes(request) == expected
    assert request.dynamic_shapes == for_torch


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
def test_nested_arguments(tree, spec, for_torch, paths):
    request = parse_request(One(), (tree, {}), dynamic_shapes=(spec,))
    assert [tensor.path for tensor in request.inputs] == paths
    assert request.dynamic_shapes == {"tree": for_torch}


class Rest(torch.nn.Module):
    def forward(self, x, *rest, scale=1.0, **more):
        return x + sum(rest) + more["y"]


@pytest.mark.parametrize(
    "spec",
    [
        ({0: "n"}, {0: "n"}, {1: "m"}, None, None),
        ({0: "n"}, ({0: "n"}, {1: "m"}), None, None),
        {"x": {0: "n"}, "rest": ({0: "n"}, {1: "m"})},
    ],
)
def test_arguments_of_a_starred_parameter(spec):
    request = parse_request(Rest(), (X, X, X), {"scale": 2.0, "y": X}, dynamic_shapes=spec)
    assert request.dynamic_shapes["x"] == {0: A}
    assert request.dynamic_shapes["rest"] == ({0: A}, {1: A})


def test_nested_leaf_by_input_name():
    request = parse_request(One(), ([X, {"k": Y}],), input_names=["p", "q"], dynamic_shapes={"q": {0: "n"}})
    assert request.dynamic_shapes == {"tree": [{}, {"k": {0: A}}]}
    assert axes(request) == [{}, {0: "n"}]


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


def test_dynamic_int_is_an_input():
    class Scaled(torch.nn.Module):
        def forward(self, n, x):
            return x * n

    request = parse_request(Scaled(), (3, X), dynamic_shapes=(Dim.DYNAMIC, {0: "n"}), input_names=["n", "x"])
    assert request.dynamic_shapes == {"n": Dim.DYNAMIC, "x": {0: A}}
    assert axes(request) == [{0: "n"}]


def _bad(message, *args, model=None, **options):
    return pytest.param(model if model is not None else Two(), args, options, message, id=message[:40])


@pytest.mark.parametrize(
    ("model", "args", "options", "message"),
    [
        _bad("x has 2 axes, so its axis 2", X, dynamic_shapes={"x": {2: "n"}}),
        _bad("x has 2 axes, so its axis -3", X, dynamic_shapes={"x": {-3: "n"}}),
        _bad("x has 2 axes, so its axis 'n'", X, dynamic_shapes={"x": {"n": 0}}),
        _bad("x has 2 axes, and its entry 1 dim", X, dynamic_shapes={"x": ["n"]}),
        _bad("Axis 1 of x is given twice", X, dynamic_shapes={"x": {1: "n", -1: "m"}}),
        _bad(
            "size 3 in the example, but the Dim 'b' allows 8 to 9", X, dynamic_shapes={"x": {0: Dim("b", min=8, max=9)}}
        ),
        _bad(
            "x.shape[0] has size 3 in the example, but the Dim 'b' allows 8 or more",
            X,
            dynamic_shapes={"x": {0: Dim("b", min=8)}},
        ),
        _bad(
            "x.shape[0] has size 3 in the example, but the Dim 'b' allows 0 to 2",
            X,
            dynamic_shapes={"x": {0: Dim("b", max=2)}},
        ),
        _bad("the Dim '2*h' allows the sizes for integers h of 0 or more", X, dynamic_shapes={"x": {0: 2 * Dim("h")}}),
        _bad(
            "the Dim '2*h + 1' allows the sizes for integers h of 5 or more",
            X,
            dynamic_shapes={"x": {0: 2 * Dim("h", min=5) + 1}},
        ),
        _bad(
            "the Dim '3*h' allows the sizes for integers h of 2 to 4",
            X,
            dynamic_shapes={"x": {0: 3 * Dim("h", min=2, max=4)}},
        ),
        _bad("must be a name, a Dim or an int, not 2.5", X, dynamic_shapes={"x": {1: 2.5}}),
        _bad("must be a dict or a list, not 'batch'", X, dynamic_shapes={"x": "batch"}),
        _bad("y is a int, not a tensor", (X, 3), dynamic_shapes={"y": {0: "n"}}),
        _bad("y is a NoneType, not a tensor", (X, None), dynamic_shapes={"y": {0: "n"}}),
        _bad(
            "have an entry for 'z', which is not one of the inputs x, p",
            X,
            dynamic_shapes={"z": None},
            input_names=["p"],
        ),
        _bad("give dynamic_shapes=({0: 'n'},).", X, dynamic_shapes={0: "n"}, input_names=["p"]),
        _bad("not one of the inputs x, y.", (X, Y), dynamic_shapes={0: "n"}),
        _bad("inputs x, tokens; did you mean 'tokens'?", X, dynamic_shapes={"token": None}, input_names=["tokens"]),
        _bad("has 2 entries, but the forward is called with 1 argument: x;", X, dynamic_shapes=(None, None)),
        _bad("must be a dict, a tuple or a list, not 'batch'", X, dynamic_shapes="batch"),
        _bad("has size 3 in the example, but dynamic_shapes makes it the static size 5", X, dynamic_shapes=({0: 5},)),
        _bad("Axis 0 of x must be a name, a Dim or an int, not True.", X, dynamic_shapes=({0: True},)),
        _bad(
            "2 entries, but the forward is called with 4 arguments: x, rest[0], rest[1], y; give",
            (X, X, X, {"y": X}),
            model=Rest(),
            dynamic_shapes=(None, None),
        ),
        _bad("must match its 2 parts", ([X, Y],), model=One(), dynamic_shapes=([None],)),
        _bad(
            "of tree have entries for c, but it has a, b",
            ({"a": X, "b": Y}, {}),
            model=One(),
            dynamic_shapes=({"c": None},),
        ),
        _bad("has size 3 at x.shape[0] and size 4 at x.shape[1]", X, dynamic_shapes={"x": {0: BATCH, 1: BATCH}}),
        _bad("has size 3 at x.shape[0] and size 2 at y", (X, t(2, 4)), dynamic_shapes=({0: BATCH}, {0: BATCH})),
        _bad("has 3 names, but the model has 2 inputs: x, y", (X, Y), input_names=["a", "b", "c"]),
        _bad("has 2 names, but the model has 1 input: x", (X, None), input_names=["a", "b"]),
    ],
)
def test_a_wrong_spec_raises_one_sentence(model, args, options, message):
    with pytest.raises(ArgumentError) as caught:
        parse_request(model, *args, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
