"""Tests of binding arguments to graph inputs."""

import pytest
import torch
from torch.export import export

from fx_onnx.messages.errors import ArgumentError
from fx_onnx.program.input_binding import bind
from fx_onnx.program.onnx_program import ONNXProgram
from fx_onnx.program.session import flatten_outputs, restore_structure
from tests.text_models import model_of


def test_bind_follows_the_signature_and_not_the_order_of_keywords():
    class Add(torch.nn.Module):
        def forward(self, p, scale=2, *, first, second):
            return p["a"] - p["b"] + first * scale - second, None, 3, {"k": first + 1}

    one, two, three, four = (torch.full((1,), float(n)) for n in range(1, 5))
    exported = export(Add(), ({"a": one, "b": two}, 2), {"first": three, "second": four})
    text = """<ir_version: 10, opset_import: ["" : 18]>
    g (float[1] a, float[1] b, float[1] first, float[1] second) => (float[1] y, int64 n, float[1] k) {
        d = Sub(a, b) s = Add(first, first) t = Add(d, s) y = Sub(t, second) k = Neg(first)
        n = Constant<value_int = 3>() }"""
    graph = model_of(text).graph
    inputs = bind(graph, exported, ({"b": two, "a": one}, 2), {"second": four, "first": three})
    assert {name: tensor.item() for name, tensor in inputs.items()} == {"a": 1, "b": 2, "first": 3, "second": 4}
    with pytest.raises(ArgumentError, match="'scale' must be 2, a constant of the exported model"):
        bind(graph, exported, ({"a": one, "b": two}, 3), {"first": three, "second": four})
    result = restore_structure(exported, [one, torch.tensor(3), two, three])  # the last is an updated buffer
    assert (result[0] is one, result[1:]) == (True, (None, 3, {"k": two}))
    assert flatten_outputs(exported, result) == flatten_outputs(None, result) == [one, 3, two]


def test_one_axis_name_has_one_size():
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[n] a, float[n] b) => (float[n] c) { c = Add(a, b) }'
    with pytest.raises(ArgumentError, match="'n' is 3 in the input 'a' but 1 in the input 'b'"):
        ONNXProgram(model_of(text))(torch.ones(3), torch.ones(1))


def test_numbers_as_inputs():
    text = '<ir_version: 10, opset_import: ["" : 18]> g (int64 a, float b, bool c) => (int64 d, float e, bool f) {\n'
    text += "d = Add(a, a)\n e = Add(b, b)\n f = Not(c) }"
    program = ONNXProgram(model_of(text))
    d, e, f = program(3, 2, True)
    assert (d.item(), e.item(), f.item(), f.dtype) == (6, 4.0, False, torch.bool)
    with pytest.raises(ArgumentError, match=r"'a' must be int64\[\], but 2.5 was given"):
        program(2.5, 1.0, False)
