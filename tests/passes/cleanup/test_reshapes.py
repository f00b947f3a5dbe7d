"""Merging of consecutive views."""

import onnx_ir as ir
import pytest
import torch

from fx_onnx.core import metadata
from fx_onnx.passes.cleanup.reshapes import MergeReshapes
from tests.passes.checking import check, model, origins


def test_reshape_of_reshape() -> None:
    """Only the last shape matters; one dynamic dim is inferred."""
    program = model("""g (float[N,6] x) => (float[N,3,2] y) <int64[3] s = {-1,2,3}, int64[3] t = {-1,3,2}> {
      a = Reshape(x, s)\n y = Reshape(a, t)
    }""")
    check(program, MergeReshapes(), [torch.randn(4, 6)], ["Reshape"])
    assert origins(program, "y") == {"%a", "%y"}


def test_two_dynamic_sizes() -> None:
    """Dims that keep their place are copied; one that moves is inferred."""
    program = model("""g (float[N,S,6] x) => (float[N,S,3,2] y) <int64[1] i = {0}, int64[4] t = {0,0,3,2}> {
      a = Unsqueeze(x, i)\n b = Squeeze(a, i)\n y = Reshape(b, t)
    }""")
    check(program, MergeReshapes(), [torch.randn(4, 5, 6)], ["Reshape"])


@pytest.mark.parametrize("inverse", ["b = Squeeze(a, i)", "b = Reshape(a, s)"])
def test_a_view_and_its_inverse_cancel(inverse: str) -> None:
    """No view is left between x and the Relu."""
    program = model(f"""g (float[2,6] x) => (float[2,6] y) <int64[1] i = {{1}}, int64[2] s = {{2,6}}> {{
      a = Unsqueeze(x, i)\n {inverse}\n y = Relu(b)
    }}""")
    check(program, MergeReshapes(), [torch.randn(2, 6)], ["Relu"])


def test_same_shape() -> None:
    """A view that keeps the shape of its input is removed."""
    program = model("g (float[N,6] x) => (float[N,6] y) { a = Flatten(x)\n y = Relu(a) }")
    program.graph[0].outputs[0].shape = program.graph.inputs[0].shape
    check(program, MergeReshapes(), [torch.randn(2, 6)], ["Relu"])


def test_a_view_with_another_consumer_stays() -> None:
    """Merging would not save a node, because the first view has another consumer."""
    program = model("""g (float[N,6] x) => (float[N,3,2] y, float[N,2,3] z)
    <int64[3] s = {-1,2,3}, int64[3] t = {-1,3,2}> {
      a = Reshape(x, s)\n y = Reshape(a, t)\n z = Relu(a)
    }""")
    check(program, MergeReshapes(), [torch.randn(4, 6)], ["Reshape", "Reshape", "Relu"])


def test_empty_and_unknown_sizes_are_left_alone() -> None:
    """A static 0 beside a dynamic size; sizes that are known at run time only."""
    program = model("""g (float[N,0] x, int64[2] s) => (float[0,N] y, float[P,Q] z) <int64[1] i = {0}> {
      a = Unsqueeze(x, i)\n b = Squeeze(a, i)\n y = Transpose(b)
      c = Unsqueeze(x, i)\n z = Reshape<allowzero=1>(c, s)
    }""")
    inputs = [torch.randn(2, 0), torch.tensor([0, 7])]
    check(program, MergeReshapes(), inputs, ["Transpose", "Unsqueeze", "Reshape"])


@pytest.mark.parametrize(
    ("dim", "data_dependent", "merged"),
    [("u0", {"u0"}, False), ("u1", {"u0"}, True), ("n", set(), True), ("n", None, False)],
)
def test_a_size_is_not_inferred_beside_a_data_dependent_one(
    dim: str, data_dependent: set[str] | None, merged: bool
) -> None:
    """Reshape cannot infer -1 of an empty tensor. The model records which dims may be 0; the names do not show it."""
    program = model(f"""g (float[{dim},3,W] x) => (float[{dim},1,3,1,W] y) <int64[1] i = {{1}}, int64[1] j = {{3}}> {{
      a = Unsqueeze(x, i)\n y = Unsqueeze(a, j)
    }}""")
    if data_dependent is not None:
        program.meta[metadata.DATA_DEPENDENT_DIMS] = frozenset(data_dependent)
    inputs = [torch.randn(4 if merged else 0, 3, 5)]
    check(program, MergeReshapes(), inputs, ["Reshape"] if merged else ["Unsqueeze", "Unsqueeze"])


def test_inside_a_function() -> None:
    """A function has no initializers: the new shape is a Constant node in it."""
    program = model("""g (float[2,6] x) => (float[3,4] y) { y = local.f(x) }
    <domain: "local", opset_import: ["" : 20]>
    f (x) => (y) {
      s = Constant<value = int64[2] {4,3}>()\n t = Constant<value = int64[2] {3,4}>()
      a = Reshape(x, s)\n y = Reshape(a, t)
    }""")
    [function] = program.functions.values()
    function[3].outputs[0].shape = ir.Shape([3, 4])
    check(program, MergeReshapes(), [torch.randn(2, 6)], ["f"])
    assert [node.op_type for node in function].count("Reshape") == 1
