"""Reads of all elements along an axis, such as the queries, keys and values of one tensor."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, constant_array, dims, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["SplitSelects"]


class SplitSelects(Rewrite):
    """Gather(x, 0), Gather(x, 1), ..., Gather(x, n - 1) along one axis → Split(x) and a Squeeze of each part.

    Legal where the indices are constants and the axis has n elements. Runtimes for phones have no kernel for Gather, or
    a slow one.
    """

    name = "split_selects"
    op_types = ("Gather",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Replaces all reads of one tensor along one axis."""
        x, sizes = node.inputs[0], dims(node.inputs[0])
        if x is None or sizes is None or editor.function is not None or x.is_initializer() or _index(node) is None:
            return False
        axis = attribute(node, "axis", 0) % len(sizes)
        count, graph = sizes[axis], node.graph
        twins = {use.node: None for use in x.uses() if _is_select(use.node, axis, len(sizes))}
        places = {_place(twin, count) for twin in twins} if isinstance(count, int) else set()
        if not isinstance(count, int) or count < 2 or places != set(range(count)):
            return False
        producer = x.producer()
        if any(twin.graph is not graph for twin in twins) or (producer is not None and producer.graph is not graph):
            return self.declines(node, "the reads are in several graphs")
        f = NodeBuilder(node, editor, x.dtype, after=x)
        part = [*sizes[:axis], 1, *sizes[axis + 1 :]]
        parts = f.emit("Split", [x], {"axis": axis, "num_outputs": count}, sizes=part, outputs=count)
        axes = editor.constant([axis], node)
        for twin in twins:
            editor.replace(twin, "Squeeze", [parts[_place(twin, count)], axes], {})
        return True


def _index(node: ir.Node) -> int | None:
    """Returns the index of a Gather if it is a 0-d constant."""
    array = constant_array(node.inputs[1])
    return int(array) if array is not None and array.shape == () else None


def _is_select(node: ir.Node, axis: int, rank: int) -> bool:
    found = producer_of(node.outputs[0], "Gather")
    return found is not None and attribute(node, "axis", 0) % rank == axis and _index(node) is not None


def _place(node: ir.Node, count: int) -> int:
    return (_index(node) or 0) % count
