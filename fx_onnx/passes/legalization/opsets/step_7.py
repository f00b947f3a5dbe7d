"""Opset 8 → 7."""

from __future__ import annotations

import numpy as np
from onnx_ir import Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.opsets.forms import rank_of, sizes_of
from fx_onnx.passes.legalization.opsets.step import OpsetStep, UnsupportedNodeError
from fx_onnx.passes.matchers import constant_array, dims, is_read

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
    # The last axes of the result are those of the target; without their number, a dynamic axis is refused.
    offset = len(result) - length if isinstance(length, int) and length else len(result)
    for axis, size in enumerate(result):
        if not isinstance(size, int) and axis >= offset:
            sizes[axis] = f.Slice(target, starts=[axis - offset], ends=[axis - offset + 1], axes=[0], sizes=(1,))
    f.editor.replace(node, "Identity", [_tiled(f, x, result, sizes)], {})


def _tiled(f: NodeBuilder, x: Value, result: _Sizes, sizes: list[Value | None]) -> Value:
    """Returns x repeated to the sizes of ``result``; ``sizes`` has those that are known only at run time.

    Raises:
        UnsupportedNodeError: it is not known whether an axis has size 1.
    """
    before = (1,) * (len(result) - rank_of(x)) + sizes_of(x)
    repeats: list[int | Value] = []
    for old, new, size in zip(before, result, sizes, strict=True):
        if old is not None and old == new:
            repeats.append(1)
        elif old == 1 and (isinstance(new, int) or size is not None):
            repeats.append(new if isinstance(new, int) else size or 1)
        else:
            raise UnsupportedNodeError("it is not known which axes it expands")
    return _repeated(f, x, repeats)


def _repeated(f: NodeBuilder, x: Value, repeats: list[int | Value]) -> Value:
    """Returns x with new first axes of size 1 up to the number of repeats, repeated along each axis."""
    known = [each for each in repeats if isinstance(each, int)]
    if all(each == 1 for each in known) and len(known) == len(repeats) == rank_of(x):
        return x
    if rank_of(x) == 0:
        x = f.Reshape(x, [1] * len(repeats))
    elif rank_of(x) < len(repeats):
        x = f.Unsqueeze(x, axes=list(range(len(repeats) - rank_of(x))))
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
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    sizes = [_size_of_result(f, values, padded, axis) for axis in range(rank)]
    operands = []
    for value, shape in zip(values, padded, strict=True):
        known = constant_array(value)
        if known is not None and all(isinstance(size, int) for size in sizes):
            operands.append(f.constant(np.array(np.broadcast_to(known, [int(s) for s in sizes if isinstance(s, int)]))))
        else:
            repeats = [size if old == 1 else 1 for old, size in zip(shape, sizes, strict=True)]
            operands.append(_repeated(f, value, repeats))
    f.editor.replace(node, node.op_type, operands)


def _size_of_result(f: NodeBuilder, values: list[Value], shapes: list[_Sizes], axis: int) -> int | Value:
    """Returns the size of an axis: that of the operands that do not have size 1 there.

    Raises:
        UnsupportedNodeError: there are several such operands, and their sizes may differ.
    """
    large = [place for place, shape in enumerate(shapes) if shape[axis] != 1]
    found = {shapes[place][axis] for place in large}
    if not large:
        return 1
    if len(large) > 1 and (len(found) > 1 or None in found):
        raise UnsupportedNodeError("it is not known which axes it expands")
    (size,) = found
    if isinstance(size, int):
        return size
    owner = values[large[0]]
    place = axis - (len(shapes[0]) - rank_of(owner))
    result: Value = f.Slice(f.Shape(owner), starts=[place], ends=[place + 1], axes=[0], sizes=(1,))
    return result


def max_pool(f: NodeBuilder) -> None:
    """MaxPool(x) with one result → the same.

    Legal because opset 7 does not return the indices of the maxima, and nothing reads them.
    """
    node = f.node
    if len(node.outputs) > 1:
        if is_read(node.outputs[1]):
            raise UnsupportedNodeError("its indices are read")
        node.resize_outputs(1)


STEP_7 = OpsetStep(
    7,
    rewrites={
        "Expand": expand,
        **dict.fromkeys(("Max", "Mean", "Min", "Sum"), same_shapes),
        "MaxPool": max_pool,
    },
)
