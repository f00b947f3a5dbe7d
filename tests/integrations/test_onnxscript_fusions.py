"""Tests of the nodes that onnxscript's fusions look for."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from fx_onnx.integrations.onnxscript_fusions import (
    multiply_by_reciprocal_norm,
    repeat_grouped_heads,
    transpose_cached_keys,
    write_nodes_for_fusions,
)
from fx_onnx.passes.fusion.attention_fusion import fold_repeats_into_rows
from tests.passes.checking import check, model

NORM = """g (float[2,N,4] x) => (float[2,N,4] y)
  <float two = {{2.0}}, float epsilon = {{1e-6}}, int64[1] axes = {{{axis}}}> {{
  s = Pow(x, two)\n m = ReduceMean<keepdims=1>(s, axes)\n p = Add(m, epsilon)\n r = Sqrt(p)\n y = Div(x, r)
}}"""
PRODUCTS = """g (float[B,4,N,8] q, float[B,2,M,8] k) => (float[B,4,N,8] y)
  <int64[4] rows = {0, 2, -1, 0}, int64[4] heads = {0, 4, -1, 0}> {
  kt = Transpose<perm=[0, 1, 3, 2]>(k)\n a = Reshape(q, rows)\n s = MatMul(a, kt)\n w = Reshape(s, heads)
  b = Reshape(w, rows)\n o = MatMul(b, k)\n y = Reshape(o, heads)
}"""


@pytest.mark.parametrize("axis", [-1, 2])
def test_a_norm_multiplies_by_the_reciprocal(axis: int) -> None:
    program = model(NORM.format(axis=axis))
    names = ["Pow", "ReduceMean", "Add", "Sqrt", "Reciprocal", "Mul"]
    check(program, multiply_by_reciprocal_norm, [torch.randn(2, 3, 4)], names)
    mean = next(node for node in program.graph if node.op_type == "ReduceMean")
    assert mean.inputs[1].const_value.numpy().tolist() == [-1]
    assert mean.attributes["noop_with_empty_axes"].value == 0


def test_a_norm_over_another_axis() -> None:
    assert not multiply_by_reciprocal_norm(model(NORM.format(axis=0))).modified


def _with_shapes(program: ir.Model) -> ir.Model:
    """Gives the results of both products their shapes, which ONNX's inference does not find."""
    for name, sizes in (("w", ("B", 4, "N", "M")), ("y", ("B", 4, "N", 8))):
        value = next(node.outputs[0] for node in program.graph if node.outputs[0].name == name)
        value.shape = ir.Shape(sizes)
    return program


def test_grouped_heads_are_repeated() -> None:
    """Both products, of the transposed keys and of the values, have one head for each of the queries."""
    program = _with_shapes(model(PRODUCTS))
    inputs = [torch.randn(3, 4, 5, 8), torch.randn(3, 2, 6, 8)]
    repeat = ["Unsqueeze", "Expand", "Reshape"]
    check(program, write_nodes_for_fusions, inputs, [*repeat, "Transpose", "MatMul", *repeat, "MatMul"])
    repeated = [node.outputs[0] for node in program.graph if node.op_type == "Reshape"]
    assert [list(value.shape) for value in repeated] == [["B", 4, "M", 8]] * 2
    assert fold_repeats_into_rows(program).modified


@pytest.mark.parametrize("rows", ["{0, 1, -1, 0}", "{1, 2, -1, 8}"])
def test_rows_of_other_groups(rows: str) -> None:
    """The rows are not the heads that share one of the other operand."""
    program = _with_shapes(model(PRODUCTS.replace("{0, 2, -1, 0}", rows)))
    assert not repeat_grouped_heads(program).modified


KEYS = """g (float[2,N,4,8] x, float[2,4,3,8] q) => (float[2,4,3,N] y, float[2,4,N,8] k) {
  s = Relu(x)\n t = Transpose<perm=[0, 2, 3, 1]>(s)\n y = MatMul(q, t)\n k = Transpose<perm=[0, 2, 1, 3]>(s)
}"""


def test_the_keys_of_a_cache_are_transposed() -> None:
    """The product reads the keys that the graph returns."""
    program = model(KEYS)
    inputs = [torch.randn(2, 5, 4, 8), torch.randn(2, 4, 3, 8)]
    check(program, transpose_cached_keys, inputs, ["Relu", "Transpose", "Transpose", "MatMul"])
    keys = program.graph.outputs[1]
    assert [use.node.op_type for use in keys.uses()] == ["Transpose"]


def test_keys_that_the_graph_does_not_return() -> None:
    program = model(KEYS.replace("k = Transpose", "r = Transpose").replace("\n}", "\n k = Relu(r)\n}"))
    assert not transpose_cached_keys(program).modified
