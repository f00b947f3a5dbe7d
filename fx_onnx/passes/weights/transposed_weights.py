"""Folding of Transposes into weights, as views that are computed when the weight is read."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import onnx_ir as ir
import torch

from fx_onnx.core.weights import computed, permuted
from fx_onnx.passes.cleanup.transposes import permutation_of
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, initializer_tensor
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FoldWeightTransposes", "restore_transpose"]


class FoldWeightTransposes(Rewrite):
    """Transpose(w) → an initializer that is a transposed view of w, and the same for a w with transB in several Gemms.

    Legal because no caller can override w. Applies where only Transposes with the same permutation, or only Gemms with
    transB, read w, so that no tied weight is stored twice.
    """

    # One Gemm keeps transB, so that w has the layout of the module. For several, ONNX Runtime's quantize_dynamic
    # transposes w once for each, so that its model is wrong.

    name = "fold_weight_transposes"
    op_types = ("Transpose", "Gemm")

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Replaces all Transposes of one weight, or lets all Gemms read it transposed."""
        source = node.inputs[node.op_type == "Gemm"]
        data = initializer_tensor(source)
        if source is None or data is None or editor.function is not None or source.is_graph_output():
            return False
        uses = [(use.node, use.idx) for use in source.uses()]
        order = _order(*uses[0])
        if node.op_type == "Gemm" and (order is None or len(uses) == 1):
            return False
        if order is None or any(_order(*use) != order for use in uses):
            return self.declines(node, "something other than the same transpositions reads the weight")
        sizes = data.shape.numpy()
        view = functools.partial(_permuted, tuple(order))
        shape = [sizes[axis] for axis in order]
        new = computed(view, data, dtype=data.dtype, shape=shape, along=permuted(order))
        value = editor.initializer(new, f"{source.name}_transposed")
        for use in uses:
            _read(*use, value, editor)
        return True


def _order(node: ir.Node, place: int) -> list[int] | None:
    """Returns how a node transposes its input at a place; None if it does anything else with it."""
    if node.op_type == "Gemm":
        return [1, 0] if place == 1 and attribute(node, "transB", 0) else None
    return None if node.outputs[0].is_graph_output() else permutation_of(node)


def _read(node: ir.Node, place: int, transposed: ir.Value, editor: Editor) -> None:
    """Lets a node read the transposed weight at a place."""
    if node.op_type == "Gemm":
        inputs = [transposed if each == place else value for each, value in enumerate(node.inputs)]
        attributes = {name: value for name, value in node.attributes.items() if name != "transB"}
        editor.replace(node, "Gemm", inputs, attributes)
    else:
        editor.replace_with_value(node, transposed)


def _permuted(order: tuple[int, ...], weight: torch.Tensor) -> torch.Tensor:
    return weight.permute(order)


def restore_transpose(value: ir.Value, source: ir.TensorProtocol, order: Sequence[int]) -> None:
    """Undoes the pass for one initializer, which becomes Transpose(source); ``source`` is stored in a file as it is.

    Args:
        value: the initializer; it is removed, and the result of the Transpose takes its name.
        source: the weight of which the value is a transposed view; it becomes an initializer under its own name.
        order: the permutation of the axes of ``source``.
    """
    graph, name = value.graph, str(value.name)
    if graph is None:
        raise ValueError(f"{name!r} is not an initializer")
    weight = graph.initializers.get(source.name or "")
    if weight is None:
        weight = ir.Value(name=source.name, shape=ir.Shape(source.shape.numpy()), const_value=source)
        weight.type = ir.TensorType(source.dtype)
        weight.metadata_props.update(value.metadata_props)
        graph.register_initializer(weight)
    node = ir.node("Transpose", [weight], {"perm": list(order)}, name=f"{name}.Transpose")
    result = node.outputs[0]
    result.shape, result.type = value.shape, value.type
    value.replace_all_uses_with(result)
    del graph.initializers[name]
    result.name = name
    graph.insert_before(graph[0], node)
