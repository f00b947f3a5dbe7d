"""Dims of size 0 or 1 in the example stay dynamic, because the capture uses a larger example."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from fx_onnx.capture.capture import capture
from fx_onnx.capture.enlarged_examples import (
    Example,
    example_with_all_dims_enlarged,
    examples_without_small_axes,
    keeps_dynamic,
    separated_example,
    small_axes,
)
from fx_onnx.capture.request import parse_request
from fx_onnx.core.errors import OnnxExporterWarning
from tests.capture.captures import run, shapes
from tests.capture.sample_modules import Function, t

BATCH = Dim("batch")


def test_examples_in_order():
    request = parse_request(Function(torch.add), (t(1, 4), t(0, 4)), dynamic_shapes=({0: "a"}, {0: "b"}))
    small = small_axes(request)
    assert small == {(0, 0): "a", (1, 0): "b"}
    by_name, equal, oblivious = examples_without_small_axes(request, small)
    assert [x.shape[0] for x in by_name.args] == [5, 6]
    assert [x.shape[0] for x in equal.args] == [7, 7]
    assert [x.shape[0] for x in oblivious.args] == [1, 0]
    assert [each.size_oblivious for each in (by_name, equal, oblivious)] == [False, False, True]


def test_arguments_that_share_a_storage_are_cloned():
    """With each other, or with a weight of the model."""
    linear, x = torch.nn.Linear(4, 4), t(3, 4)
    separated = separated_example(Example((x, x[:1]), {"w": linear.weight}), linear)
    assert separated.args[0] is x
    assert [tuple(tensor.shape) for tensor in separated.args] == [(3, 4), (1, 4)]
    others = (separated.args[1], separated.kwargs["w"])
    for tensor, same in zip(others, (x[:1], linear.weight), strict=True):
        assert torch.equal(tensor, same)
        assert tensor.data_ptr() != same.data_ptr()


def test_all_dims_enlarged():
    request = parse_request(Function(torch.add), (t(3, 4), t(1, 4)), dynamic_shapes=({0: "a"}, None))
    assert [tuple(x.shape) for x in example_with_all_dims_enlarged(request).args] == [(12, 4), (1, 4)]


@pytest.mark.parametrize(("dims", "kept"), [({0: Dim.AUTO}, True), ({}, False)])
def test_keeps_dynamic(dims, kept):
    request = parse_request(Function(torch.relu), (t(1, 4),), dynamic_shapes=({0: "a"},))
    program = torch.export.export(Function(torch.relu), (t(3, 4),), dynamic_shapes={"x": dims})
    assert keeps_dynamic(request, program, small_axes(request)) == kept


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
        captured = capture(
            parse_request(Function(torch.add).eval(), (t(1, 2), t(1, 2)), dynamic_shapes=({0: "a"}, {0: "b"}))
        )
    assert shapes(captured) == [("a", "2")] * 2


def test_size_1_beside_a_sum_of_sizes():
    def step(x, y):  # a decoding step: the mask is as long as the past and the input together
        return torch.cat([x, x.new_zeros(5)]) + y

    with pytest.warns(OnnxExporterWarning, match="makes the dim 'total' equal to new \\+ 5"):
        captured = capture(
            parse_request(Function(step).eval(), (t(1), t(6)), dynamic_shapes=({0: "new"}, {0: "total"}))
        )
    assert captured.specialized == ()


def test_size_1_that_the_model_fixes():
    with pytest.warns(OnnxExporterWarning, match=r"Axis 0 \('n'\) of input 'x' is static with size 1: "):
        captured = capture(parse_request(Function(lambda x: x.reshape(4)).eval(), t(1, 4), dynamic_shapes=({0: "n"},)))
    assert shapes(captured) == [("1", "4")]
