"""Removal of what attention computes for queries whose keys are all masked, where the mask has no such row."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import constant_number, dims, producer_of, same_shape
from fx_onnx.passes.rules import Result, rule

__all__ = ["eliminate_row_guards"]


@rule(
    "Where(~Less(bias, number.lowest), _, bias)",
    "out * ~Clip(~ReduceSum(~Where(~Less(bias, number.lowest), 0.0, 2.0), integers.axes, keepdims=1), _, 1.0)",
)
def eliminate_row_guards(
    f: NodeBuilder, node: ir.Node, bias: Value, lowest: float, out: Value | None, axes: list[int] | None
) -> Result:
    """Where(bias < c, _, bias) → bias, and attention * min(1, number of keys with bias ≥ c) → attention.

    Legal where no element of the bias is below c, as in the product of a boolean mask and the lowest finite number:
    then the number is that of the keys. Without keys it is 0, as the attention is, a product over an axis of that size.
    """
    numbers = _numbers(bias)
    if not numbers or any(number < lowest for number in numbers):
        return "an element of the bias may be below the limit"
    sizes = dims(bias)
    if out is None:
        return bias if same_shape(bias, node.outputs[0]) else "the other operands change the shape"
    if not sizes or axes not in ([-1], [len(sizes) - 1]) or not same_shape(out, node.outputs[0]):
        return "the number is not that of the last axis, or changes the shape"
    merge = producer_of(out, "Reshape")
    product = producer_of(out if merge is None else merge.inputs[0], "MatMul")
    weights = None if product is None or product.inputs[0] is None else product.inputs[0].shape
    if not weights or weights[-1] != sizes[-1]:
        return "it does not multiply a product over the axis that is counted"
    return out


_OPERATIONS = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
_FLOATS = (DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16, DataType.DOUBLE)


def _numbers(value: Value | None) -> set[Any] | None:
    """Returns numbers among which all elements are, computed in their dtype; None if they depend on more than masks."""
    if value is None or value.dtype not in _FLOATS:
        return None
    kind, constant = value.dtype.numpy().type, constant_number(value)
    node = producer_of(value, "Cast", "Where", *_OPERATIONS)
    if constant is not None:
        return {kind(constant)}
    if node is None:
        return None
    if node.op_type == "Cast":
        source = node.inputs[0]
        return {kind(0), kind(1)} if source is not None and source.dtype == DataType.BOOL else None
    first, second = map(_numbers, node.inputs[-2:])
    if first is None or second is None:
        return None
    if node.op_type == "Where":
        return first | second
    with np.errstate(all="ignore"):
        return {_OPERATIONS[node.op_type](a, b) for a in first for b in second}
