"""Folding of Transposes into weights, as views that are computed when the weight is read."""

from __future__ import annotations

import functools
from collections.abc import MutableMapping, Sequence

import onnx_ir as ir
import torch

from fx_onnx.core.weights import computed, permuted
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, initializer_tensor, permutation_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FoldWeightTransposes", "TransposeSharedWeights", "restore_transpose", "transposed"]


class FoldWeightTransposes(Rewrite):
    """Transpose(w) → an initializer that is a transposed view of w.

    Legal because no caller can override w. Applies where only Transposes with the same permutation read w, so that no
    tied weight is stored twice.
    """

    name = "fold_weight_transposes"
    op_types = ("Transpose",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Replaces all Transposes of one weight."""
        source, order = node.inputs[0], permutation_of(node)
        data = _data(source, editor)
        if source is None or data is None:
            return False
        twins = [use.node for use in source.uses()]
        if order is None or any(permutation_of(twin) != order or twin.outputs[0].is_graph_output() for twin in twins):
            return self.declines(node, "something other than Transposes with the same permutation reads the weight")
        value = editor.initializer(transposed(data, order), f"{source.name}_transposed")
        for twin in twins:
            editor.replace_with_value(twin, value)
        return True


class TransposeSharedWeights(Rewrite):
    """Gemm(x, w, transB=1), Gemm(y, w, transB=1) → Gemm(x, wᵀ), Gemm(y, wᵀ), where wᵀ is an initializer.

    Legal because no caller can override w. Applies where only such Gemms read w, and more than one: ONNX Runtime's
    quantize_dynamic transposes w once for each of them, so that its model is wrong. One Gemm keeps the layout of the
    module. Left out where modules become functions, because the calls of one module would have two bodies.
    """

    name = "transpose_shared_weights"
    op_types = ("Gemm",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Replaces the weight of all Gemms that read it."""
        source = node.inputs[1]
        data = _data(source, editor)
        if source is None or data is None or len(source.uses()) == 1:
            return False
        uses = [(use.node, use.idx) for use in source.uses()]
        if any(each.op_type != "Gemm" or place != 1 or not attribute(each, "transB", 0) for each, place in uses):
            return self.declines(node, "something other than Gemms with transB reads the weight")
        value = editor.initializer(transposed(data, [1, 0]), f"{source.name}_transposed")
        for each, _ in uses:
            attributes = {name: found for name, found in each.attributes.items() if name != "transB"}
            editor.replace(each, "Gemm", [each.inputs[0], value, *each.inputs[2:]], attributes)
        return True


def _data(value: ir.Value | None, editor: Editor) -> ir.TensorProtocol | None:
    """Returns the tensor of a weight; None for another value, for an output, and inside of a function."""
    if value is None or value.is_graph_output() or editor.function is not None:
        return None
    return initializer_tensor(value)


def transposed(data: ir.TensorProtocol, order: Sequence[int]) -> ir.TensorProtocol:
    """Returns the transposed view of a weight."""
    sizes = data.shape.numpy()
    view, shape = functools.partial(_permuted, tuple(order)), [sizes[axis] for axis in order]
    return computed(view, data, dtype=data.dtype, shape=shape, along=permuted(order))


def _permuted(order: tuple[int, ...], weight: torch.Tensor) -> torch.Tensor:
    return weight.permute(order)


def restore_transpose(
    initializers: MutableMapping[str, ir.Value], name: str, source: ir.TensorProtocol, order: Sequence[int]
) -> ir.Node:
    """Undoes the pass for one initializer: returns Transpose(source), whose result has the name of the initializer.

    Args:
        initializers: the initializers of a graph, by name. ``source`` takes the place of the one that becomes a result.
        name: the initializer.
        source: the weight of which the initializer is a transposed view; it is stored in a file as it is.
        order: the permutation of the axes of ``source``.
    """
    value = initializers.pop(name)
    weight = initializers.get(source.name or "")
    if weight is None:
        weight = ir.Value(name=source.name, shape=ir.Shape(source.shape.numpy()), const_value=source)
        weight.type = ir.TensorType(source.dtype)
        weight.metadata_props.update(value.metadata_props)
        initializers[str(source.name)] = weight
    node = ir.node("Transpose", [weight], {"perm": ir.AttrInt64s("perm", list(order))}, name=f"{name}.Transpose")
    result = node.outputs[0]
    result.name, result.shape, result.type = name, value.shape, value.type
    return node
