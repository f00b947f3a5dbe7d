"""Fusion of the product of a quantized weight with its scale into DequantizeLinear."""

from __future__ import annotations

import functools
import math

import onnx_ir as ir
import torch
from onnx_ir import DataType

from fx_onnx.core.dtypes import is_float8
from fx_onnx.core.weights import computed
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, commuted_inputs, dims, initializer_tensor, is_absorbable, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FuseDequantizeLinear"]


class FuseDequantizeLinear(Rewrite):
    """Cast(w) * s → DequantizeLinear(w, s); MatMul(x, Cast(w)) * s → MatMul(x, DequantizeLinear(w, s)), also for Gemm.

    Legal where w is an 8-bit weight and s, a float32 weight, has one element, or one for each index of one axis of w
    (for each output column in a product). Scaling before a product instead of after it changes only the rounding. No
    other node may read an intermediate result.
    """

    name = "fuse_dequantize_linear"
    op_types = ("Mul",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites at one Mul."""
        if node.outputs[0].dtype != DataType.FLOAT or editor.function is not None:
            return False
        for value, scale in commuted_inputs(node):
            before = producer_of(value, "Cast", "MatMul", "Gemm")
            if before is None or value is None or scale is None or initializer_tensor(scale) is None:
                continue
            if scale.dtype != DataType.FLOAT or dims(scale) is None:
                continue
            cast = before if before.op_type == "Cast" else producer_of(before.inputs[1], "Cast")
            found = _quantized(cast)
            if cast is None or found is None:
                continue
            if not is_absorbable(value) or not is_absorbable(cast.outputs[0]):
                self.declines(node, "another node reads the Cast or the product")
                continue
            fuse = self._fuse_cast if before is cast else self._fuse_product
            if fuse(node, before, cast, scale, editor):
                return True
        return False

    def _fuse_cast(self, node: ir.Node, _: ir.Node, cast: ir.Node, scale: ir.Value, editor: Editor) -> bool:
        """Fuses Cast(w) * s."""
        found = _quantized(cast)
        if found is None or dims(node.outputs[0]) != found[1]:
            return self.declines(node, "the scale widens the weight")
        weight, sizes = found
        scales = (1,) * (len(sizes) - len(dims(scale) or ())) + tuple(dims(scale) or ())
        along = [axis for axis, size in enumerate(scales) if size != 1]
        if len(along) > 1:
            return self.declines(node, "the scale, of shape %s, varies along more than one axis", dims(scale))
        axis = along[0] if along else None
        inputs = [weight, _scale_vector(scale, axis, editor)]
        editor.replace(node, "DequantizeLinear", inputs, {"axis": axis}, absorbed=[cast])
        return True

    def _fuse_product(self, node: ir.Node, product: ir.Node, cast: ir.Node, scale: ir.Value, editor: Editor) -> bool:
        """Fuses MatMul(x, Cast(w)) * s, or the same with a Gemm that neither adds nor scales."""
        found = _quantized(cast)
        if found is None or len(found[1]) != 2:
            return self.declines(node, "the weight is not a matrix")
        if len(product.inputs) > 2 or attribute(product, "alpha", 1.0) != 1.0 or attribute(product, "transA", 0):
            return self.declines(node, "the Gemm adds, scales or transposes x")
        result, scales = dims(product.outputs[0]), dims(scale) or ()
        axis = 0 if attribute(product, "transB", 0) else 1
        if result is None or result != dims(node.outputs[0]) or any(size != 1 for size in scales[:-1]):
            return self.declines(node, "the scale, of shape %s, is not one for each column", scales)
        if scales and scales[-1] not in (1, found[1][axis]):
            return self.declines(node, "the scale, of shape %s, is not one for each column", scales)
        vector = _scale_vector(scale, axis if scales and scales[-1] != 1 else None, editor)
        attributes = {} if dims(vector) == () else {"axis": axis}
        made = NodeBuilder(cast, editor, DataType.FLOAT).DequantizeLinear(
            found[0], vector, **attributes, sizes=found[1]
        )
        editor.replace(node, product.op_type, [product.inputs[0], made], product.attributes, absorbed=[product])
        return True


def _quantized(cast: ir.Node | None) -> tuple[ir.Value, tuple[int, ...]] | None:
    """Returns the 8-bit weight that a Cast widens to float32, and its sizes; None if there is none."""
    if cast is None or cast.outputs[0].dtype != DataType.FLOAT:
        return None
    source = cast.inputs[0]
    data = initializer_tensor(source)
    if source is None or data is None or not (is_float8(data.dtype) or data.dtype in (DataType.INT8, DataType.UINT8)):
        return None
    return source, tuple(data.shape.numpy())


def _scale_vector(scale: ir.Value, axis: int | None, editor: Editor) -> ir.Value:
    """Returns the scale in the shape that DequantizeLinear takes: a scalar, or a vector along ``axis``."""
    data = initializer_tensor(scale)
    sizes = scale.shape.numpy() if scale.shape is not None else ()
    wanted = () if axis is None else (math.prod(sizes),)
    if data is None or sizes == wanted:
        return scale
    view = functools.partial(_reshaped, wanted)
    return editor.initializer(computed(view, data, dtype=data.dtype, shape=wanted), f"{scale.name}_vector")


def _reshaped(sizes: tuple[int, ...], scale: torch.Tensor) -> torch.Tensor:
    return scale.reshape(sizes)
