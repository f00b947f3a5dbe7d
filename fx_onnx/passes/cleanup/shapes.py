"""Cleanups of nodes that only move elements: views, Transposes, and reads of all positions of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.onnx_model import metadata
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import (
    attribute,
    constant_array,
    constant_integers,
    constant_number,
    dims,
    permutation_of,
    producer_of,
    same_shape,
    single_use,
)
from fx_onnx.passes.rules import Result, rule
from fx_onnx.sizes.size_rules import constant_reshape

__all__ = ["eliminate_index_grids", "eliminate_trivial_moves", "merge_reshapes", "merge_transposes", "split_selects"]

_Array = npt.NDArray[Any]
_VIEW = "(Reshape | Flatten | Squeeze | Unsqueeze)"


def _keeps_places(node: ir.Node) -> bool:
    order = permutation_of(node)
    return same_shape(node.inputs[0], node.outputs[0]) if order is None else order == sorted(order)


@rule(
    "(Transpose | Reshape | Flatten | Squeeze | Unsqueeze | Expand)(x, ...)",
    "Slice(x, _, _, _ | None, const.steps | None)",
    where={"node": _keeps_places},
)
def eliminate_trivial_moves(x: Value, steps: _Array | None) -> Result:
    """f(x) → x, for a view, an Expand, a Transpose or a Slice that moves no element.

    Legal where the permutation is the identity; for the others, where the shape stays, and the steps of a Slice are 1.
    """
    return x if steps is None or (steps == 1).all() else None


@rule(f"{_VIEW}(~{_VIEW}(x, ...), ...)")
def merge_reshapes(f: NodeBuilder, node: ir.Node, nodes: Sequence[ir.Node], x: Value) -> Result:
    """View(View(x)) → Reshape(x), or x if the shapes are equal.

    A view is a Reshape, Flatten, Squeeze or Unsqueeze. Legal because all four keep the elements in order, so that only
    the last shape matters. Applies where a constant can express that shape: each dim is a number, a copy (0) of the
    input's dim at the same place, or the one dim that Reshape infers (-1). A dim cannot be inferred beside a dim that
    may be 0.
    """
    output = node.outputs[0]
    if same_shape(x, output):
        return x
    if not single_use(nodes[1].outputs[0]):
        return f"another node reads the {nodes[1].op_type}"
    sizes = _constant_shape(x, output, f.editor.model)
    return f"a constant cannot express the shape {output.shape}" if sizes is None else f.Reshape(x, sizes)


def _constant_shape(origin: Value, output: Value, model: ir.Model) -> list[int] | None:
    """Returns the constant shape input of a Reshape from ``origin`` to ``output``; None if there is none.

    Data-dependent dims may be 0. If the model does not record which dims these are, any dim may be 0.
    """
    new = dims(output)
    if new is None or 0 in new:
        return None
    data_dependent: frozenset[str] | None = model.meta.get(metadata.DATA_DEPENDENT_DIMS)
    return constant_reshape(dims(origin), new, lambda dim: data_dependent is None or dim in data_dependent)


@rule("Transpose(~Transpose(x))")
def merge_transposes(f: NodeBuilder, nodes: Sequence[ir.Node], x: Value) -> Result:
    """Transpose(Transpose(x)) → Transpose(x) with the composed permutation, or x if that is the identity.

    Legal because a permutation of a permutation is a permutation.
    """
    outer, inner = map(permutation_of, nodes)
    if outer is None or inner is None or len(outer) != len(inner):
        return None
    composed = [inner[axis] for axis in outer]
    return x if composed == sorted(composed) else f.Transpose(x, perm=composed)


@rule("GatherND(x, indices, batch_dims=0)")
def eliminate_index_grids(f: NodeBuilder, node: ir.Node, x: Value, indices: Value) -> Result:
    """GatherND(x, all positions along some axes) → Unsqueeze(x). An example is mask[batch_idx, None, None, kv_idx].

    Legal where the k-th column of the indices is Range(0, n, 1) along one axis of the result, n is the size of the k-th
    axis of x, the axes of the result have the order of those of x, and all other axes of the indices have size 1.
    """
    columns, sizes, result = _columns(indices), dims(x), dims(node.outputs[0])
    if sizes is None or result is None or not columns:
        return None
    grid = result[: len(result) + len(columns) - len(sizes)]  # the shape of each column
    axes = [_range_axis(column, size, grid) for column, size in zip(columns, sizes, strict=False)]
    known = [axis for axis in axes if axis is not None]
    if len(known) < len(axes):
        return "a column of the indices is not the range of all positions"
    if known != sorted(set(known)):
        return "the axes are permuted or repeated"
    others = [axis for axis in range(len(grid)) if axis not in known]
    if any(grid[axis] != 1 for axis in others):
        return "the result repeats the elements"
    return f.Unsqueeze(x, others) if others else x


def _columns(indices: ir.Value | None) -> list[ir.Value]:
    """Returns the columns of the indices (..., k), each without the last axis; none if they are not built so."""
    concat = producer_of(indices, "Concat")
    if concat is not None and attribute(concat, "axis") != -1:
        return []
    columns = []
    for part in [indices] if concat is None else concat.inputs:
        unsqueeze = producer_of(part, "Unsqueeze")
        column = None if unsqueeze is None or constant_integers(unsqueeze.inputs[1]) != [-1] else unsqueeze.inputs[0]
        if column is None:
            return []
        columns.append(column)
    return columns


def _range_axis(column: ir.Value, size: int | str, grid: tuple[int | str, ...]) -> int | None:
    """Returns the axis along which a column is Range(0, size, 1), broadcast along all others; None if it is not."""
    expand = producer_of(column, "Expand")
    value = column if expand is None else expand.inputs[0]
    reshape = producer_of(value, "Reshape", "Unsqueeze")
    source = producer_of(value if reshape is None else reshape.inputs[0], "Range")
    shape = dims(value)
    if source is None or shape is None or dims(source.outputs[0]) != (size,):
        return None
    long = [axis - len(shape) + len(grid) for axis, dim in enumerate(shape) if dim != 1]
    begins_at_0 = constant_number(source.inputs[0]) == 0 and constant_number(source.inputs[2]) == 1
    return long[0] if begins_at_0 and len(long) == 1 and grid[long[0]] == size else None


@rule("Gather(x, const.index, axis=axis)", where={"index": lambda index: not index.shape})
def split_selects(f: NodeBuilder, node: ir.Node, x: Value, axis: int) -> Result:
    """Gather(x, 0), Gather(x, 1), ..., Gather(x, n - 1) along one axis → Split(x) and a Squeeze of each part.

    Legal where the indices are constants and the axis has n elements. Runtimes for phones have no kernel for Gather, or
    a slow one.
    """
    sizes, editor = dims(x), f.editor
    if sizes is None or editor.function is not None or x.is_initializer():
        return None
    axis, graph = axis % len(sizes), node.graph
    count = sizes[axis]
    twins = {use.node: None for use in x.uses() if _is_select(use.node, axis, len(sizes))}
    places = {_place(twin, count) for twin in twins} if isinstance(count, int) else set()
    if not isinstance(count, int) or count < 2 or places != set(range(count)):
        return None
    producer = x.producer()
    if any(twin.graph is not graph for twin in twins) or (producer is not None and producer.graph is not graph):
        return "the reads are in several graphs"
    behind = NodeBuilder(node, editor, x.dtype, after=x)
    parts = behind.emit("Split", [x], {"axis": axis, "num_outputs": count}, outputs=count)
    for twin in twins:
        if twin is not node:
            editor.replace(twin, "Squeeze", [parts[_place(twin, count)], editor.constant([axis], node)], {})
    return f.Squeeze(parts[_place(node, count)], [axis])


def _index(node: ir.Node) -> int | None:
    """Returns the index of a Gather if it is a 0-d constant."""
    array = constant_array(node.inputs[1])
    return int(array) if array is not None and array.shape == () else None


def _is_select(node: ir.Node, axis: int, rank: int) -> bool:
    gather = producer_of(node.outputs[0], "Gather")
    return gather is not None and attribute(node, "axis", 0) % rank == axis and _index(node) is not None


def _place(node: ir.Node, count: int) -> int:
    return (_index(node) or 0) % count
