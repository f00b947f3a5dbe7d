"""Legalization of operators that move elements: axes, shapes, repetition, blocks and triangles."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.onnx_model.dtypes import is_float
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import (
    axis_of,
    counted,
    known_rank,
    rank_of,
    scalar_size,
    size_of,
    sizes_of,
    static_integers,
)
from fx_onnx.passes.legalization.ranges_and_slices import name_sizes
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import constant_array, constant_integers, dims, is_read_by, producer_of
from fx_onnx.passes.rules import DeclinedError, Result

__all__ = ["legalize_identity_matrices"]

_Sizes = tuple[int | str | None, ...]


# ---------------------------------------------------------------- axes and constants


@legalizes(
    *(
        f"{op_type}(*values)"
        for op_type in (
            "ArgMax", "ArgMin", "Compress", "Concat", "Flatten", "Hardmax", "LogSoftmax", "ReduceL1", "ReduceL2",
            "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
            "ReduceSumSquare", "Softmax", "Split", "Squeeze", "Unsqueeze",
        )
    ),
    until=10,
)  # fmt: skip
def axes_from_zero(f: NodeBuilder, node: ir.Node) -> Result:
    """op<axis=-1>(x) → op<axis=rank - 1>(x).

    Legal because both name the same axis. Opset 10 has no negative axes.
    """
    for name in ("axis", "axes"):
        given = f.attribute(name)
        axes = [given] if isinstance(given, int) else list(given or ())
        if any(axis < 0 for axis in axes):
            rank = rank_of(node.outputs[0] if node.op_type == "Unsqueeze" else node.inputs[0])
            fitted = [axis % rank for axis in axes]
            changed = {name: fitted[0] if isinstance(given, int) else fitted}
            return f.emit(node.op_type, node.inputs, {**node.attributes, **changed}, outputs=len(node.outputs))
    return None


@legalizes("Constant()", until=11)
def constant_of_tensor(f: NodeBuilder, node: ir.Node) -> Result:
    """Constant<value_int>, <value_floats>, ... → Constant<value>.

    Legal because a tensor represents the same numbers.
    """
    ((name, attr),) = node.attributes.items()
    dtypes = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    return f.Constant(value=ir.Tensor(np.array(attr.value, dtypes[name]))) if name in dtypes else None


@legalizes("ConstantOfShape(shape)", targets=("webgpu",))
@legalizes("ConstantOfShape(shape)", until=8)
def expand_constant(f: NodeBuilder, shape: Value) -> Result:
    """ConstantOfShape<value>(shape) → Expand(value, shape).

    Legal because both repeat the value. The default value is the float 0. WebGPU has a kernel for Expand only.
    """
    value = f.attribute("value")
    return f.Expand(f.constant((np.zeros(1, np.float32) if value is None else value.numpy()).reshape(())), shape)


@legalizes("EyeLike(x, k=k)", targets=("tensorrt",))
def legalize_identity_matrices(f: NodeBuilder, x: Value, k: int) -> Result:
    """EyeLike(x) → Cast(row + k = column).

    Legal because these are the ones of the matrix. TensorRT for RTX (1.7.1) takes static sizes only.
    """
    rows, columns = (counted(f, scalar_size(f, x, axis)) for axis in (0, 1))
    return f.Cast(f.Equal(f.Unsqueeze(f.Add(rows, k), [1]), columns), to=f.dtype)


@legalizes("EyeLike(x)", until=8)
def constant_matrix(f: NodeBuilder, x: Value) -> Result:
    """EyeLike(x) → the matrix as a constant.

    Legal because the matrix depends on the sizes only, which must be static.
    """
    sizes = dims(x)
    if sizes is None or not all(isinstance(size, int) for size in sizes):
        return "its sizes are not static"
    rows, columns = (int(size) for size in sizes)
    return f.constant(np.eye(rows, columns, k=f.attribute("k", 0), dtype=f.dtype.numpy()))


# ---------------------------------------------------------------- shapes


@legalizes("Shape(x, start=start, end=end)", until=14)
def slice_shape(f: NodeBuilder, x: Value, start: int, end: int | None) -> Result:
    """Shape<start, end>(x) → Slice(Shape(x), start, end).

    Legal because Slice clamps negative and large bounds as Shape does.
    """
    sizes = f.Shape(x)
    return sizes if not start and end is None else f.Slice(sizes, [start], [sys.maxsize if end is None else end], [0])


@legalizes("Reshape(x, target, allowzero=allowzero)", until=13)
def reshape_without_zeros(f: NodeBuilder, node: ir.Node, x: Value, target: Value, allowzero: int) -> Result:
    """Reshape<allowzero=1>(x, sizes) → If(a size is 0, Expand(0, sizes), Reshape(x, sizes)).

    Legal because a result with a size of 0 has no elements, so the value that is expanded has no effect. The If is left
    out where the sizes are constant, or where each size that may be 0 is that of the same axis of x, which a 0 copies.
    """
    sizes = constant_integers(target)
    if allowzero and sizes is not None and 0 in sizes:
        return f.Expand(f.constant(0), target)
    if not allowzero or sizes is not None or _copies_zeros(node):
        return f.Reshape(x, target)
    is_empty = f.Equal(f.ReduceMin(target, [0], keepdims=0), 0)
    branches = {
        "then_branch": _branch(f, ir.node("Expand", [f.constant(0), target])),
        "else_branch": _branch(f, ir.node("Reshape", [x, target])),
    }
    return f.If(is_empty, **branches)


def _copies_zeros(node: ir.Node) -> bool:
    """Returns whether a size of 0 in the result can only be that of the same axis of the input."""
    before, after = dims(node.inputs[0]), dims(node.outputs[0])
    if before is None or after is None:
        return False
    return all(
        (isinstance(size, int) and size > 0) or (axis < len(before) and size == before[axis])
        for axis, size in enumerate(after)
    )


def _branch(f: NodeBuilder, made: ir.Node) -> ir.Graph:
    """Returns a graph without inputs that has one node."""
    output = made.outputs[0]
    made.name = output.name = f.editor.unique_name(f"{f.node.name or f.node.outputs[0].name}.{made.op_type}")
    made.metadata_props.update(f.node.metadata_props)
    output.type, output.shape = f.node.outputs[0].type, f.node.outputs[0].shape
    return ir.Graph([], [output], nodes=[made], name=made.name)


@legalizes("Flatten(x)", until=8)
def reshape_to_matrix(f: NodeBuilder, x: Value) -> Result:
    """Flatten<axis>(x) of other types than floats → Reshape(x, [product before axis, -1]).

    Legal because this is the definition.
    """
    if is_float(f.dtype):
        return None
    axis, sizes = axis_of(f, x, 1), dims(x)
    if axis <= 1:
        return f.Reshape(x, [0 if axis else 1, -1])
    if sizes is None or not all(isinstance(size, int) for size in sizes[:axis]):
        return "its sizes are not static"
    return f.Reshape(x, [int(np.prod([int(size) for size in sizes[:axis]])), -1])


# ---------------------------------------------------------------- parts


@legalizes("Split(x, num_outputs=count)", until=17)
def split_by_sizes(f: NodeBuilder, node: ir.Node, x: Value, count: int | None) -> Result:
    """Split<num_outputs>(x) → Split(x, sizes).

    Legal because the parts have equal sizes, ⌈n / num_outputs⌉, except the last one, which has the rest.
    """
    if count is None:
        return None
    axis = f.attribute("axis", 0)
    size = None if x.shape is None else x.shape[axis]
    if isinstance(size, int):
        chunk = -(-size // count)
        sizes = f.constant([chunk] * (count - 1) + [size - chunk * (count - 1)])
    else:
        total = size_of(f, x, axis)
        part = f.Div(f.Add(total, [count - 1]), [count])
        sizes = f.Concat(*[part] * (count - 1), f.Sub(total, f.Mul(part, [count - 1])), axis=0)
    return f.emit("Split", [x, sizes], {"axis": axis}, outputs=len(node.outputs))


@legalizes("Split(x, sizes)", until=12)
def split_by_slices(f: NodeBuilder, node: ir.Node, x: Value, sizes: Value) -> Result:
    """Split(x, sizes) → Split<split>(x), or one Slice for each part if the sizes are dynamic.

    Legal because part i of Split begins at the sum of the sizes before it.
    """
    if constant_integers(sizes) is not None:
        return None
    bounds, axis = [f.constant([0])], f.attribute("axis", 0)
    for index in range(len(node.outputs)):
        bounds.append(f.Add(bounds[-1], f.Slice(sizes, [index], [index + 1], [0])))
    return [f.Slice(x, *pair, [axis]) for pair in itertools.pairwise(bounds)]


@legalizes("Trilu(x, k | None)", until=13)
def choose_triangle(f: NodeBuilder, x: Value, k: Value | None) -> Result:
    """Trilu(x, k) → Where(column - row ≥ k, x, 0), with ≤ for the lower triangle.

    Legal because this is the definition of Trilu.
    """
    known_rank(f)
    rows, columns = (counted(f, scalar_size(f, x, axis)) for axis in (-2, -1))
    compare = f.GreaterOrEqual if f.attribute("upper", 1) else f.LessOrEqual
    distance = f.Sub(columns, f.Unsqueeze(rows, [1]))
    return f.Where(compare(distance, 0 if k is None else k), x, 0)


# ---------------------------------------------------------------- repetition


@legalizes("Expand(x, target)", until=7)
def tile_to_sizes(f: NodeBuilder, node: ir.Node, x: Value, target: Value) -> Result:
    """Expand(x, shape) → Tile(x, sizes of the result / sizes of x).

    Legal because an axis that is expanded has size 1, so that repeating it is expanding it.
    """
    result, known = sizes_of(node.outputs[0]), constant_array(target)
    (length,) = (len(known),) if known is not None else dims(target) or (0,)
    # The last axes of the result are those of the target; without their number, a dynamic axis is refused.
    offset = len(result) - length if isinstance(length, int) and length else len(result)
    repeats: list[int | Value] = []
    for axis, (old, new) in enumerate(zip((1,) * (len(result) - rank_of(x)) + sizes_of(x), result, strict=True)):
        if old is not None and old == new:
            repeats.append(1)
        elif old != 1 or (not isinstance(new, int) and axis < offset):
            return "it is not known which axes it expands"
        elif isinstance(new, int):
            repeats.append(new)
        else:
            repeats.append(f.Slice(target, [axis - offset], [axis - offset + 1], [0]))
    return _repeated(f, x, repeats)


def _repeated(f: NodeBuilder, x: Value, repeats: Sequence[int | Value]) -> Value:
    """Returns x with new first axes of size 1 up to the number of repeats, repeated along each axis."""
    known = [repeat for repeat in repeats if isinstance(repeat, int)]
    if all(repeat == 1 for repeat in known) and len(known) == len(repeats) == rank_of(x):
        return x
    if rank_of(x) == 0:
        x = f.Reshape(x, [1] * len(repeats))
    elif rank_of(x) < len(repeats):
        x = f.Unsqueeze(x, list(range(len(repeats) - rank_of(x))))
    values = [[repeat] if isinstance(repeat, int) else repeat for repeat in repeats]
    return f.Tile(x, known if len(known) == len(repeats) else f.Concat(*values, axis=0))


@legalizes("Max(*values)", "Mean(*values)", "Min(*values)", "Sum(*values)", until=7)
def repeat_to_one_shape(f: NodeBuilder, node: ir.Node, values: Sequence[Value]) -> Result:
    """Max(a, b) of different shapes, Mean, Min, Sum → the same of operands that Tile repeats to one shape.

    Legal because opset 7 computes elementwise without broadcasting.
    """
    shapes = [sizes_of(value) for value in values]
    if None not in shapes[0] and all(shape == shapes[0] for shape in shapes):
        return None
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    sizes = [_size_of_result(f, values, padded, axis) for axis in range(rank)]
    static = [size for size in sizes if isinstance(size, int)]
    operands = []
    for value, shape in zip(values, padded, strict=True):
        known = constant_array(value)
        if known is not None and len(static) == rank:
            operands.append(f.constant(np.array(np.broadcast_to(known, static))))
        else:
            repeats = [size if old == 1 else 1 for old, size in zip(shape, sizes, strict=True)]
            operands.append(_repeated(f, value, repeats))
    return f.emit(node.op_type, operands, {})[0]


def _size_of_result(f: NodeBuilder, values: Sequence[Value], shapes: list[_Sizes], axis: int) -> int | Value:
    """Returns the size of an axis: that of the operands that do not have size 1 there.

    Raises:
        DeclinedError: there are several such operands, and their sizes may differ.
    """
    large = [index for index, shape in enumerate(shapes) if shape[axis] != 1]
    sizes = {shapes[index][axis] for index in large} or {1}
    if len(large) > 1 and (len(sizes) > 1 or None in sizes):
        raise DeclinedError("it is not known which axes it expands")
    (size,) = sizes
    if isinstance(size, int):
        return size
    own_axis = axis - (len(shapes[0]) - rank_of(values[large[0]]))
    return f.Slice(f.Shape(values[large[0]]), [own_axis], [own_axis + 1], [0])


@legalizes("Pad(x, pads, value | None, axes)", until=17)
def pad_all_axes(f: NodeBuilder, node: ir.Node, x: Value, pads: Value, value: Value | None, axes: Value) -> Result:
    """Pad(x, pads, value, axes) → Pad(x, pads of all axes, value).

    Legal because an axis that is not listed gets no padding. Where a pooling reads the result, the Pad is computed with
    an additional first axis of size 1, because ONNX Runtime would merge the Pad into the pooling, with other results
    (see ``legalize_pads``).
    """
    rank = known_rank(f)
    places = [axis % rank for axis in static_integers(axes, "axes are") or []]
    amounts = static_integers(pads, "pads are") if places != list(range(rank)) else constant_array(pads)
    more = () if value is None else (value,)
    if amounts is None:
        return f.Pad(x, pads, *more, **dict(node.attributes))
    full = np.zeros((2, rank), np.int64)
    full[:, places] = np.reshape(amounts, (2, -1))
    before, after = full.tolist()
    if is_read_by(node.outputs[0], "MaxPool", "AveragePool"):
        padded = f.Pad(f.Unsqueeze(x, [0]), [0, *before, 0, *after], value, **dict(node.attributes))
        return f.Squeeze(padded, [0])
    return f.Pad(x, [*before, *after], *more, **dict(node.attributes))


@legalizes("Pad(x, pads, value | None)", until=10)
def pad_by_blocks(f: NodeBuilder, node: ir.Node, x: Value, pads: Value, value: Value | None) -> Result:
    """Pad(x, pads, value) → Pad<pads, value>(x), or Concat of x and Expand(value) for other types and dynamic pads.

    Legal because both mean the same. The attribute ``value`` is a float32.
    """
    amounts = _amounts(f, pads, 2 * known_rank(f))
    known = [amount for amount in amounts if isinstance(amount, int)]
    mode = f.attribute("mode", "constant")
    fill = np.zeros((), f.dtype.numpy()) if value is None else constant_array(value)
    if len(known) == len(amounts) and (mode != "constant" or (fill is not None and f.dtype is DataType.FLOAT)):
        return f.Pad(x, known, mode=mode, value=0.0 if fill is None else float(fill.reshape(())))
    if mode != "constant":
        return "its pads are computed at run time"
    content = f.constant(fill) if fill is not None else value
    result, count = x, len(amounts) // 2
    for axis, (before, after) in enumerate(zip(amounts[:count], amounts[count:], strict=True)):
        result = _padded(f, _cut(f, result, axis, before, after), axis, before, after, content)
    return result


def _amounts(f: NodeBuilder, pads: Value, count: int) -> list[int | Value]:
    """Returns the elements of the pads: numbers where they are known, else scalars."""
    maker = producer_of(pads, "Concat")
    parts = [pads] if maker is None else list(maker.inputs)
    arrays = [constant_array(part) for part in parts]
    if all(array is not None or dims(part) == (1,) for array, part in zip(arrays, parts, strict=True)):
        amounts: list[int | Value] = []
        for array, part in zip(arrays, parts, strict=True):
            amounts += [f.Squeeze(part, [0])] if array is None else [int(amount) for amount in array]
        return amounts
    return [f.Gather(pads, f.constant(index, DataType.INT64), axis=0) for index in range(count)]


def _cut(f: NodeBuilder, x: Value, axis: int, before: int | Value, after: int | Value) -> Value:
    """Returns x without the elements that negative pads remove from one axis."""
    if all(isinstance(amount, int) and amount >= 0 for amount in (before, after)):
        return x
    cuts = [f.constant(amount, DataType.INT64) if isinstance(amount, int) else amount for amount in (before, after)]
    first, last = (f.Where(f.Less(cut, 0), cut, 0) for cut in cuts)
    result = f.Slice(x, f.Unsqueeze(f.Neg(first), [0]), f.Add(_size_now(f, x, axis), last), [axis])
    name_sizes(f, x, result, [axis])
    return result


def _padded(f: NodeBuilder, x: Value, axis: int, before: int | Value, after: int | Value, value: Value | None) -> Value:
    """Returns x with ``value`` before and after it along one axis."""
    rank = rank_of(x)
    blocks: list[Value | None] = []
    for amount in (before, after):
        if isinstance(amount, int):
            count = f.constant([amount]) if amount > 0 else None
        else:
            count = f.Unsqueeze(f.Where(f.Greater(amount, 0), amount, 0), [0])
        sizes = [count if dim == axis else _size_now(f, x, dim) for dim in range(rank)] if count is not None else []
        blocks.append(f.Expand(value, f.Concat(*sizes, axis=0)) if sizes else None)
    parts = [part for part in (blocks[0], x, blocks[1]) if part is not None]
    return x if len(parts) < 2 else f.Concat(*parts, axis=axis)


def _size_now(f: NodeBuilder, x: Value, axis: int) -> Value:
    return f.Gather(f.Shape(x), [axis], axis=0)
