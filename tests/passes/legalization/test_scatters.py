"""Reads at positions that a tensor holds."""

import pytest
import torch

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.legalization.scatters import gather_elements, stride
from tests.passes.checking import builder, model, run


def test_strides() -> None:
    """Known ones are constants."""
    f = builder("(float[N,3,4] x, float[A,B,C] z) => (float[N,3,4] y) { y = Relu(x) }")
    x = f.node.inputs[0]
    assert x is not None
    assert stride(f, x, 0).const_value.numpy() == 12
    assert stride(f, x, 0, end=2).const_value.numpy() == 3
    assert stride(f, x, 2).const_value.numpy() == 1
    x = f.editor.model.graph.inputs[1]
    assert stride(f, x, 1).producer().op_type == "Gather"
    assert stride(f, x, 0).producer().op_type == "Mul"


@pytest.mark.parametrize(("sizes", "shorter"), [("A,B,C", "D,E,F"), ("5,3,4", "2,3,1"), ("A,3,4", "D,3,1")])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements(axis: int, sizes: str, shorter: str) -> None:
    """The indices are shorter than x along the other axes."""
    program = model(f"g (float[{sizes}] x, int64[{shorter}] i) => (float[D,E,F] y) {{ y = Identity(x) }}", opset=10)
    node, x, i = program.graph[0], *program.graph.inputs
    node.replace_input_with(0, gather_elements(NodeBuilder(node, Editor(program), x.dtype), x, i, axis))
    given, indices = torch.randn(5, 3, 4), torch.randint(0, (5, 3, 4)[axis], (2, 3, 1))
    assert run(program, [given, indices])[0].equal(given.gather(axis, indices))


def test_elements_of_a_vector() -> None:
    f = builder("(float[N] x, int64[K] i) => (float[N] y) { y = Relu(x) }")
    x, i = f.editor.model.graph.inputs
    assert [*gather_elements(f, x, i, 0).producer().inputs] == [x, i]
