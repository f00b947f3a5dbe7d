"""dynamic_axes, as the older API of torch.onnx.export defines it."""

from __future__ import annotations

import pytest
import torch

import fx_onnx
from fx_onnx.messages.errors import ArgumentError, OnnxExporterWarning
from fx_onnx.requests.request import parse_request
from tests.capture.sample_modules import Two, X, Y, axes, t


class Both(torch.nn.Module):
    def forward(self, x, y):
        return x * 2, y + 1


@pytest.mark.parametrize(
    ("dynamic_axes", "expected", "outputs"),
    [
        ({"x": {0: "n"}}, [{0: "n"}, {}], {}),
        ({"first": {0: "n"}, "second": {-1: "m"}}, [{0: "n"}, {1: "m"}], {}),
        ({"x": [0, 1]}, [{0: "x_dynamic_axes_1", 1: "x_dynamic_axes_2"}, {}], {}),
        ({"sum": [0]}, [{}, {}], {"sum": {0: "sum_dynamic_axes_1"}}),
        ({"y": {0: "n"}, "sum": {0: "n"}}, [{}, {0: "n"}], {"sum": {0: "n"}}),
        ({"x": {0: "n", 1: "4"}, "sum": {0: "n", 1: "4"}}, [{0: "n"}, {}], {"sum": {0: "n"}}),
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


def test_one_name_for_dims_of_different_sizes_becomes_two_names():
    spec = {"x": {0: "n", 1: "n"}, "y": {0: "n", 1: "n_1"}}
    with pytest.warns(OnnxExporterWarning, match=r"'n' is the name of .*; x.shape\[1\], of size 3, is called 'n_2'"):
        request = parse_request(Two(), (t(2, 3), t(2, 5)), dynamic_axes=spec)
    assert axes(request) == [{0: "n", 1: "n_2"}, {0: "n", 1: "n_1"}]


def test_dynamic_shapes_with_one_name_for_dims_of_different_sizes():
    with pytest.warns(OnnxExporterWarning, match=r"'n' is the name of .*; x.shape\[1\], of size 3, is called 'n_1'"):
        parse_request(Two(), (t(2, 3), Y), dynamic_shapes={"x": {0: "n", 1: "n"}})
    with pytest.raises(ArgumentError, match="use two Dims"):
        parse_request(Two(), (t(2, 3), Y), dynamic_shapes={"x": dict.fromkeys((0, 1), torch.export.Dim("n"))})


def test_an_output_axis_keeps_its_own_name_if_the_name_belongs_to_another_dim():
    spec = {"x": {0: "n"}, "y": {0: "n"}, "p": {0: "n"}, "q": {0: "n"}}
    with pytest.warns(OnnxExporterWarning, match="q.shape\\[0\\] is 'n_1', not 'n'"):
        program = fx_onnx.export(
            Both().eval(), (t(2, 3), t(4, 3)), dynamic_axes=spec, output_names=["p", "q"], input_names=["x", "y"]
        )
    assert [value.shape[0] for value in program.model.graph.outputs] == ["n", "n_1"]
    first, second = program(t(5, 3), t(6, 3))
    assert (len(first), len(second)) == (5, 6)


def _bad(message, *args, model=None, **options):
    return pytest.param(model if model is not None else Two(), args, options, message, id=message[:40])


@pytest.mark.parametrize(
    ("model", "args", "options", "message"),
    [
        _bad("['x'] must map axes to dim names", X, dynamic_axes={"x": 0}),
        _bad("['x'] must map axes to dim names or", X, dynamic_axes={"x": {0: 1}}),
        _bad("size 3 in the example, but dynamic_axes gives it the size '5'", X, dynamic_axes={"x": {0: "5"}}),
        _bad("'-1' is a number", X, dynamic_axes={"x": {0: "-1"}}),
        _bad("['x'] must map axes to dim names or be", X, dynamic_axes={"x": ["batch"]}),
    ],
)
def test_wrong_axes_raise_one_sentence(model, args, options, message):
    with pytest.raises(ArgumentError) as caught:
        parse_request(model, *args, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_that_is_no_input_or_output_is_a_warning():
    with pytest.warns(OnnxExporterWarning, match=r"; did you mean 'tensor'\?"):
        parse_request(Two(), (X, Y), dynamic_axes={"tesnor": {0: "n"}}, input_names=["tensor", "other"])
    with pytest.warns(
        OnnxExporterWarning, match="no effect for 'image', which is neither in output_names nor one of the"
    ):
        request = parse_request(Two(), (X, Y), dynamic_axes={"x": {0: "n"}, "image": {0: "n"}})
    assert axes(request) == [{0: "n"}, {}]


def test_a_static_axis_of_an_output_is_logged(caplog):
    with caplog.at_level("DEBUG", "fx_onnx.export"):
        fx_onnx.export(Both(), (X, Y), output_names=["p", "q"], dynamic_axes={"p": {0: "n"}})
    assert "dynamic_axes for axis 0 of the output 'p' has no effect: its size is always 3" in caplog.text
