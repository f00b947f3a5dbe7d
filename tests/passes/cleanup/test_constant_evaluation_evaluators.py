"""The evaluators decline where torch computes something else. test_constant_evaluation.py compares values."""

import numpy as np
import onnx_ir as ir
import pytest

from fx_onnx.passes.cleanup.constant_evaluation import OPERATORS


def node(op_type: str, count: int, **attributes: int) -> ir.Node:
    """Returns a node with INT64 inputs."""
    inputs = [ir.Value(name=f"x{i}", type=ir.TensorType(ir.DataType.INT64)) for i in range(count)]
    return ir.node(op_type, inputs, attributes)


@pytest.mark.parametrize(
    ("made", "values"),
    [
        (node("Div", 2), (np.array([1]), np.array([0]))),  # an integer by zero
        (node("Div", 2), (np.array([1]), None)),
        (node("Mod", 2), (np.array([1]), np.array([0]))),
        (node("Cast", 1, to=ir.DataType.FLOAT8E4M3FN), (np.array([1]),)),
        (node("Reshape", 2), (np.array([1]), np.array([0, 1]))),  # a size that is copied
        (node("Reshape", 2), (np.array([1]), None)),
        (node("Expand", 2), (np.array([1]), None)),
        (node("Slice", 5), (np.arange(3), np.array([2]), np.array([0]), np.array([0]), np.array([-1]))),  # backwards
        (node("Range", 3), (np.float32(0), np.float32(1), np.float32(0.1))),
        (node("Range", 3), (np.array(0), np.array(10**9), np.array(1))),
        (node("Transpose", 1), (None,)),  # a weight
    ],
)
def test_declines(made: ir.Node, values: tuple[np.ndarray | None, ...]) -> None:
    """A division by zero, an unknown operand, a dtype without torch support and a large result are not computed."""
    assert OPERATORS[made.op_type](made, *values) is None
