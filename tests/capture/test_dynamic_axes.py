"""dynamic_axes, as the older API of torch.onnx.export defines it."""

from __future__ import annotations

import pytest

from fx_onnx.capture.request import parse_request
from fx_onnx.core.errors import ArgumentError
from tests.capture.sample_modules import Two, X, Y, axes


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
def test_each_form(dynamic_axes, expected, outputs):
    names = {"input_names": ["first", "second"], "output_names": ["sum"]}
    request = parse_request(Two(), (X, Y), dynamic_axes=dynamic_axes, **names)
    assert axes(request) == expected
    assert request.output_axes == outputs


def test_input_names_take_precedence_over_parameters_in_dynamic_axes_only():
    swapped = {"input_names": ["y", "x"]}
    assert axes(parse_request(Two(), (X, Y), dynamic_axes={"y": {0: "n"}}, **swapped)) == [{0: "n"}, {}]
    assert axes(parse_request(Two(), (X, Y), dynamic_shapes={"y": {0: "n"}}, **swapped)) == [{}, {0: "n"}]


def _bad(message, *args, model=None, **options):
    return pytest.param(model if model is not None else Two(), args, options, message, id=message[:40])


@pytest.mark.parametrize(
    ("model", "args", "options", "message"),
    [
        _bad("entry for 'out', which is not one", X, dynamic_axes={"out": [0]}),
        _bad("['x'] must map axes to dim names", X, dynamic_axes={"x": 0}),
        _bad("['x'] must map axes to dim names or", X, dynamic_axes={"x": {0: 1}}),
        _bad("['x'] must map axes to dim names or be", X, dynamic_axes={"x": ["batch"]}),
    ],
)
def test_wrong_axes_raise_one_sentence(model, args, options, message):
    with pytest.raises(ArgumentError) as caught:
        parse_request(model, *args, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
