"""Products of a quantised weight with its scale as DequantizeLinear."""

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
from fx_onnx.passes.matchers import attribute, commuted_inputs, dims, initializer_tensor, single_use_producer
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FuseDequantizeLinear"]


class FuseDequantizeLinear(Rewrite):
    """Cast(w) * s → DequantizeLinear(w, s); MatMul(x, Cast(w)) * s → MatMul(x, DequantizeLinear(w, s)), also of Gemm.

    Legal where w is a weight of 8 bits, an integer or a float, and s a weight of one scale, or of one for each index of
    an axis of w (of its columns in a product), all in float32, and nothing else reads what is between. Scaling before
    a product and after it differ by rounding only.
    """

    name = "fuse_dequantize_linear"
    op_types = ("Mul",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites at one Mul."""
        if node.outputs[0].dtype != DataType.FLOAT or editor.function is not None:
            return False
        for value, scale in commuted_inputs(node):
            before = single_use_producer(value, "Cast", "MatMul", "Gemm")
            if before is None or scale is None or initializer_tensor(scale) is None:
                continue
            if scale.dtype != DataType.FLOAT or dims(scale) is None:
                continue
            if (_cast if before.op_type == "Cast" else _product)(node, before, scale, editor):
                return True
        return False


def _quantized(cast: ir.Node | None) -> tuple[ir.Value, tuple[int, ...]] | None:
    """The weight of 8 bits that a Cast widens to float32, and its sizes."""
    if cast is None or cast.outputs[0].dtype != DataType.FLOAT:
        return None
    source = cast.inputs[0]
    data = initializer_tensor(source)
    if source is None or data is None or not (is_float8(data.dtype) or data.dtype in (DataType.INT8, DataType.UINT8)):
        return None
    return source, tuple(data.shape.numpy())


def _cast(node: ir.Node, cast: ir.Node, scale: ir.Value, editor: Editor) -> bool:
    found = _quantized(cast)
    if found is None or dims(node.outputs[0]) != found[1]:  # the scale would widen it
        return False
    weight, sizes = found
    scales = (1,) * (len(sizes) - len(dims(scale) or ())) + tuple(dims(scale) or ())
    along = [axis for axis, size in enumerate(scales) if size != 1]
    if len(along) > 1:
        return False
    axis = along[0] if along else None
    editor.replace(node, "DequantizeLinear", [weight, _vector(scale, axis, editor)], {"axis": axis}, absorbed=[cast])
    return True


def _product(node: ir.Node, product: ir.Node, scale: ir.Value, editor: Editor) -> bool:
    """The second factor is the weight; a Gemm adds nothing and has no factors."""
    cast = single_use_producer(product.inputs[1], "Cast")
    found = _quantized(cast)
    if cast is None or found is None or len(found[1]) != 2:
        return False
    if len(product.inputs) > 2 or attribute(product, "alpha", 1.0) != 1.0 or attribute(product, "transA", 0):
        return False
    result, scales = dims(product.outputs[0]), dims(scale) or ()
    axis = 0 if attribute(product, "transB", 0) else 1
    if result is None or result != dims(node.outputs[0]) or any(size != 1 for size in scales[:-1]):
        return False
    if scales and scales[-1] not in (1, found[1][axis]):
        return False
    vector = _vector(scale, axis if scales and scales[-1] != 1 else None, editor)
    attributes = {} if dims(vector) == () else {"axis": axis}
    made = NodeBuilder(cast, editor, DataType.FLOAT).DequantizeLinear(found[0], vector, **attributes, sizes=found[1])
    editor.replace(node, product.op_type, [product.inputs[0], made], product.attributes, absorbed=[product])
    return True


def _vector(scale: ir.Value, axis: int | None, editor: Editor) -> ir.Value:
    """The scales as DequantizeLinear takes them: one, or a vector."""
    data = initializer_tensor(scale)
    sizes = scale.shape.numpy() if scale.shape is not None else ()
    wanted = () if axis is None else (math.prod(sizes),)
    if data is None or sizes == wanted:
        return scale
    view = functools.partial(_reshaped, wanted)
    return editor.initializer(computed(view, data, dtype=data.dtype, shape=wanted), f"{scale.name}_vector")


def _reshaped(sizes: tuple[int, ...], scale: torch.Tensor) -> torch.Tensor:
    return scale.reshape(sizes)
