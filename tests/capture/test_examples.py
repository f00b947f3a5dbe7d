"""Dims of size 0 or 1 in the example stay dynamic; a larger example is needed only where the forward fixes one."""

from __future__ import annotations

import logging

import pytest
import torch
from torch.export import Dim

from fx_onnx.capture.capture import capture
from fx_onnx.capture.examples import (
    Example,
    enlarged_examples,
    original_example,
    separated_example,
    small_axes,
    specializing_example,
)
from fx_onnx.messages.errors import OnnxExporterWarning
from fx_onnx.requests.request import parse_request
from tests.capture.captures import run, shapes
from tests.capture.sample_modules import Function, t

BATCH = Dim("batch")


def test_examples_in_order():
    request = parse_request(Function(torch.add), (t(1, 4), t(0, 4)), dynamic_shapes=({0: "a"}, {0: "b"}))
    small = small_axes(request)
    assert small == {(0, 0): "a", (1, 0): "b"}
    by_name, equal = enlarged_examples(request, small)
    assert [x.shape[0] for x in by_name.args] == [5, 6]
    assert [x.shape[0] for x in equal.args] == [7, 7]
    assert list(enlarged_examples(request, {})) == []
    assert original_example(request).args is specializing_example(request).args is request.args
    flags = [each(request).specializes for each in (original_example, specializing_example)]
    assert flags == [False, True]
    assert [bool(each.decision) for each in (original_example(request), by_name, equal)] == [False, True, True]


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


def one_row(x):
    return x.squeeze(0) if x.shape[0] == 1 else x * 2


def truncated(x):
    return x.new_ones(int(2.5 * x.shape[0]), 4).sum(0) + x


def chunks(x):
    count = (x.shape[0] + 3) // 4
    return x[:count] + torch.zeros(count, x.shape[1])


@pytest.mark.parametrize(
    ("function", "rows", "calls"),
    [
        (torch.relu, 0, ["call"]),
        (torch.relu, 1, ["call"]),
        (torch.relu, 3, ["call"]),
        (chunks, 3, ["call"]),
        (lambda x: list(x.split([2, x.shape[0] - 2])), 3, ["call"]),
        (lambda x: x.reshape(3, 4), 3, ["call"]),
        (lambda x: torch.cat([x[row] for row in range(x.shape[0])]), 1, ["call", "larger", "static"]),
        (lambda x: x.sum(0) if x.shape[0] != 1 else x[0], 1, ["call", "larger"]),
        (truncated, 1, ["call", "larger", "strict"]),
    ],
)
@pytest.mark.filterwarnings("ignore::fx_onnx.messages.errors.OnnxExporterWarning")
def test_number_of_captures(function, rows, calls, caplog):
    module, x = Function(function).eval(), t(rows, 4)
    with caplog.at_level(logging.DEBUG, "fx_onnx.stages"):
        captured = capture(parse_request(module, (x,), dynamic_shapes=({0: "n"},)))
    logged = [each.getMessage() for each in caplog.records if "torch.export.export(" in each.getMessage()]
    words = {"strict=True": "strict", "are larger": "larger", "static dims": "static", "": "call"}
    kinds = [next(kind for word, kind in words.items() if word in text) for text in logged]
    assert kinds == calls
    torch.testing.assert_close(captured.exported_program.module(check_guards=False)(x), module(x))


class Residual(torch.nn.Module):
    """The attention of a transformer's layer, with its norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + self.attention(x, x, x, need_weights=False)[0])


@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("spec", [{0: "batch"}, {0: BATCH}, {0: Dim.AUTO}, {0: Dim.DYNAMIC}, {0: "batch", 1: "seq"}])
def test_size_0_and_1_stay_dynamic(batch, spec):
    model = Residual(8, 2)
    captured = run(model, t(batch, 1 if 1 in spec else 3, 8), dynamic_shapes=(spec,))
    program = captured.exported_program
    output = next(iter(program.graph.output_node().args[0])).meta["val"]
    assert all(isinstance(output.shape[axis], torch.SymInt) for axis in spec)
    assert captured.strategy == "torch.export(strict=False)"
    assert program.example_inputs[0][0].shape[0] == batch
    for size in (1, 4):
        x = t(size, 3, 8)
        torch.testing.assert_close(program.module(check_guards=False)(x), model(x))


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
    captured = run(lambda x: x.reshape(4), t(1, 4), dynamic_shapes=({0: "n"},))
    assert [(each.kind, each.holds({"n": 1}), each.holds({"n": 2})) for each in captured.dims.conditions] == [
        ("bound", True, False)
    ]
