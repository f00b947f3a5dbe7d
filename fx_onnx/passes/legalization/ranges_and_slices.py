"""Legalization of ranges, slices, sorts and distinct elements."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import (
    sizes_of,
)
from fx_onnx.passes.legalization.table import DEFAULT, WIDE, legalizes
from fx_onnx.passes.matchers import (
    constant_array,
    constant_number,
    producer_of,
)
from fx_onnx.passes.rules import Result

__all__ = ["DEPTH", "KEEPS_NONNEGATIVE", "is_nonnegative", "legalize_range_indices", "name_sizes"]

# Operators whose results are not negative if the operands at these positions are not negative.
KEEPS_NONNEGATIVE: dict[str, tuple[int, ...]] = {
    "Add": (0, 1), "Mul": (0, 1), "Div": (0, 1), "Cast": (0,), "Identity": (0,),
    "Squeeze": (0,), "Unsqueeze": (0,), "Reshape": (0,), "Gather": (0,), "Slice": (0,),
}  # fmt: skip

DEPTH = 16  # the longest chain of operands that the proof follows; expressions over sizes are shorter


# ---------------------------------------------------------------- ranges


@legalizes("Range(start, limit, delta)", targets=(DEFAULT,))
def legalize_range_indices(f: NodeBuilder, node: ir.Node, start: Value, limit: Value, delta: Value) -> Result:
    """Gather(x, Range(start, limit, delta)) → Gather(x, Sub(start, Range(0, start - limit, -delta))).

    Legal because the two ranges are equal: both have ⌈(limit - start) / delta⌉ elements. Applies where a bound of the
    range may be negative and the Gather is its only consumer: ONNX Runtime's GatherToSliceFusion replaces
    ``Gather(x, Range(start, limit, delta))`` by ``Slice(x, start, limit, delta)``, and Slice counts a negative bound
    from the end of the axis. ``x[arange(n - 1, -1, -1)]`` then gives an empty tensor. Measured with ONNX Runtime 1.31.1
    at opsets 15 to 24.
    """
    uses = list(node.outputs[0].uses())
    if not any(use.node.op_type == "Gather" and not use.node.domain and use.idx == 1 for use in uses):
        return None
    if len(uses) > 1:
        return "it has several consumers, so ONNX Runtime does not fuse it"
    if is_nonnegative(start) and is_nonnegative(limit):
        return "neither bound can be negative"
    return f.Sub(start, f.Range(0, f.Sub(start, limit), f.Neg(delta)))


def is_nonnegative(value: Value | None, depth: int = DEPTH) -> bool:
    """Returns whether the value is provably not negative, as every size is."""
    number = constant_array(value)
    if number is not None:
        return bool((number >= 0).all())
    if producer_of(value, "Shape", "Size") is not None:
        return True
    node = producer_of(value, *KEEPS_NONNEGATIVE, "Max", "Range")
    if node is None or depth == 0:
        return False
    if node.op_type == "Range":
        step = constant_number(node.inputs[2])
        return step is not None and step > 0 and is_nonnegative(node.inputs[0], depth - 1)
    if node.op_type == "Max":
        return any(is_nonnegative(operand, depth - 1) for operand in node.inputs)
    return all(is_nonnegative(node.inputs[index], depth - 1) for index in KEEPS_NONNEGATIVE[node.op_type])


def name_sizes(f: NodeBuilder, x: Value, result: Value, axes: list[int] | None) -> None:
    """Gives unknown sizes of a Slice's result names that no other size has.

    ONNX's shape inference for Slice of opset 10 gives a sliced axis the name of the whole axis. ONNX Runtime then
    assumes that the two are equal, and fails when it reuses the memory of one for the other.
    """
    if x.shape is None:
        return
    sizes = sizes_of(x if result.shape is None else result)
    sliced = range(len(sizes)) if axes is None else axes
    if result.shape is None:
        sizes = tuple(None if axis in sliced else size for axis, size in enumerate(sizes))
    name = f.editor.unique_name(f"{result.name or f.node.name}_size")
    result.shape = ir.Shape([f"{name}_{axis}" if size is None else size for axis, size in enumerate(sizes)])


@legalizes("NonZero(x)", lacks=WIDE)
def non_zero_of_booleans(f: NodeBuilder, x: Value) -> Result:
    """NonZero(x) → NonZero(Cast(x)) of booleans.

    Legal because a Cast to bool is false for 0 only.
    """
    return f.NonZero(f.Cast(x, to=DataType.BOOL))
