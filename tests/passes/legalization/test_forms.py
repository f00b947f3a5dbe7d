"""The expressions below opset 11 compute what they describe, and constants where all is known."""

import numpy as np
import pytest
import torch

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.legalization import forms
from fx_onnx.passes.rules import DeclinedError
from tests.passes.checking import builder, model, run


def test_known_sizes_are_constants() -> None:
    f = builder("(float[N,3,4] x) => (float[N,3,4] y) { y = Relu(x) }")
    x = f.node.inputs[0]
    assert x is not None
    assert forms.scalar_size(f, x, 1).const_value.numpy() == 3
    assert forms.counted(f, f.constant(np.array(3))).const_value.numpy().tolist() == [0, 1, 2]
    assert forms.scalar_size(f, x, 0).producer().op_type == "Gather"
    assert forms.sizes_of(x) == ("N", 3, 4)
    assert (forms.axis_of(f, x, -1), forms.rank_of(x)) == (2, 3)
    with pytest.raises(DeclinedError, match="the rank of its input is not known"):
        forms.rank_of(None)


def test_the_rank_of_a_result() -> None:
    f = builder("(float[N,3,4] x) => (float[N,3,4] y) { y = Relu(x) }")
    x = f.node.inputs[0]
    assert x is not None
    x.shape = None
    assert forms.scalar_size(f, x, 0).producer().op_type == "Gather"
    assert forms.known_rank(f) == 3
    assert forms.sizes_of(x) == (None, None, None)


def test_round_half_to_even() -> None:
    program = model("g (float[N] x) => (float[N] y) { y = Identity(x) }", opset=9)
    node = program.graph[0]
    x = program.graph.inputs[0]
    node.replace_input_with(0, forms.round_half_to_even(NodeBuilder(node, Editor(program), x.dtype), x))
    halves = torch.cat([torch.arange(-4.0, 4.0) + 0.5, torch.tensor([0.49999997, -1e-10, 2.0**24 + 1, float("inf")])])
    assert run(program, [halves])[0].equal(halves.round())
