"""Opset 8 → 7."""

from __future__ import annotations

import numpy as np
from onnx_ir import Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.opsets.forms import rank_of, sizes_of
from fx_onnx.passes.legalization.opsets.step import OpsetStep, UnsupportedNodeError
from fx_onnx.passes.matchers import constant_array, dims, initializer_tensor

__all__ = ["STEP_7"]

_Sizes = tuple[int | str | None, ...]


def expand(f: NodeBuilder) -> None:
    """Expand(x, shape) → Tile(x, sizes of the result / sizes of x).

    Legal because an axis that is expanded has size 1, so that repeating it is expanding it.
    """
    node = f.node
    x, target = node.inputs
    if x is None:
        return
    result = sizes_of(node.outputs[0])
    known = constant_array(target)
    sizes: list[Value | None] = [None] * len(result)
    (length,) = dims(target) or (0,)
    length = len(known) if known is not None else length
    # The last axes of the result are those of the target; without their number, an axis of the run is refused.
    offset = len(result) - length if isinstance(length, int) and length else len(result)
    for axis, size in enumerate(result):
        if not isinstance(size, int) and axis >= offset:
            sizes[axis] = f.Slice(target, starts=[axis - offset], ends=[axis - offset + 1], axes=[0], sizes=(1,))
    f.editor.replace(node, "Identity", [_tiled(f, x, result, sizes)], {})


def _tiled(f: NodeBuilder, x: Value, result: _Sizes, sizes: list[Value | None]) -> Value:
    """Returns x repeated to the sizes of ``result``; ``sizes`` has the values of those that only the run knows.

    Raises:
        UnsupportedNodeError: it is not known whether an axis has size 1.
    """
    before = (1,) * (len(result) - rank_of(x)) + sizes_of(x)
    if before == result and all(size is not None for size in result):
        return x
    if rank_of(x) < len(result):
        x = (
            f.Unsqueeze(x, axes=list(range(len(result) - rank_of(x))))
            if rank_of(x)
            else f.Reshape(x, [1] * len(result))
        )
    repeats: list[int | Value] = []
    for old, new, size in zip(before, result, sizes, strict=True):
        if old is not None and old == new:
            repeats.append(1)
        elif old == 1 and isinstance(new, int):
            repeats.append(new)
        elif old == 1 and size is not None:
            repeats.append(size)
        else:
            raise UnsupportedNodeError("it is not known which axes it expands")
    known = [each for each in repeats if isinstance(each, int)]
    values = [f.constant([each]) if isinstance(each, int) else each for each in repeats]
    times = f.constant(known) if len(known) == len(repeats) else f.Concat(*values, axis=0, sizes=(len(values),))
    tiled: Value = f.Tile(x, times)
    return tiled


def same_shapes(f: NodeBuilder) -> None:
    """Max(a, b) of different shapes, Mean, Min, Sum → the same of operands that Tile repeats to one shape.

    Legal because opset 7 computes elementwise without broadcasting.
    """
    node = f.node
    values = [value for value in node.inputs if value is not None]
    shapes = [sizes_of(value) for value in values]
    if None not in shapes[0] and all(shape == shapes[0] for shape in shapes):
        return
    result = sizes_of(node.outputs[0])
    sizes = [_size_like(f, values, len(result), axis, size) for axis, size in enumerate(result)]
    f.editor.replace(node, node.op_type, [_broadcast(f, value, result, sizes) for value in values])


def _broadcast(f: NodeBuilder, value: Value, result: _Sizes, sizes: list[Value | None]) -> Value:
    known = constant_array(value)
    if known is not None and all(isinstance(size, int) for size in result) and initializer_tensor(value) is not None:
        shape = [int(size) for size in result if isinstance(size, int)]
        if np.prod(shape) <= 1024:
            return f.constant(np.array(np.broadcast_to(known, shape)))
    return _tiled(f, value, result, sizes)


def _size_like(f: NodeBuilder, values: list[Value], rank: int, axis: int, size: int | str | None) -> Value | None:
    """Returns the size of an axis of the result, from an operand that has it; None where it is a number."""
    if isinstance(size, int) or size is None:
        return None
    for value in values:
        shape = (1,) * (rank - rank_of(value)) + sizes_of(value)
        if shape[axis] == size:
            place = axis - (rank - rank_of(value))
            found: Value = f.Slice(f.Shape(value), starts=[place], ends=[place + 1], axes=[0], sizes=(1,))
            return found
    return None


def max_pool(f: NodeBuilder) -> None:
    """MaxPool(x) with one result → the same.

    Legal because opset 7 does not return the indices of the maxima, and nothing reads them.
    """
    node = f.node
    if len(node.outputs) > 1:
        if node.outputs[1].uses() or node.outputs[1].is_graph_output():
            raise UnsupportedNodeError("its indices are read")
        node.resize_outputs(1)


STEP_7 = OpsetStep(
    7,
    rewrites={
        "Expand": expand,
        **dict.fromkeys(("Max", "Mean", "Min", "Sum"), same_shapes),
        "MaxPool": max_pool,
    },
    unchanged={},
)
