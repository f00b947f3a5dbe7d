"""Fusion of the product of a quantized weight with its scale into DequantizeLinear, and of the rows read from one."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx.core.dtypes import is_float8
from fx_onnx.core.weights import computed
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import dims, initializer_tensor
from fx_onnx.passes.rules import Result, rule

__all__ = ["fuse_dequantize_linear", "gather_quantized_rows"]


@rule(
    "scale * Cast(w, to=1)",
    "scale * MatMul(x, Cast(w, to=1))",
    "scale * Gemm(x, Cast(w, to=1), alpha=1.0, transA=0, transB=is_turned)",
    where={"scale": Value.is_initializer, "w": Value.is_initializer},
)
def fuse_dequantize_linear(
    f: NodeBuilder,
    node: ir.Node,
    nodes: Sequence[ir.Node],
    scale: Value,
    w: Value,
    x: Value | None,
    is_turned: int | None,
) -> Result:
    """Cast(w) * s → DequantizeLinear(w, s); MatMul(x, Cast(w)) * s → MatMul(x, DequantizeLinear(w, s)), also for Gemm.

    Legal where w is an 8-bit weight and s, a float32 weight, has one element, or one for each index of one axis of w
    (for each output column in a product). Scaling before a product instead of after it changes only the rounding. No
    other node may read an intermediate result.
    """
    data, factors, product = initializer_tensor(w), initializer_tensor(scale), nodes[1]
    if data is None or factors is None or factors.dtype != DataType.FLOAT or f.editor.function is not None:
        return None
    if not (is_float8(data.dtype) or data.dtype in (DataType.INT8, DataType.UINT8)):
        return None
    sizes, scales, result = data.shape.numpy(), factors.shape.numpy(), dims(node.outputs[0])
    if x is None:
        if result != sizes:
            return "the scale widens the weight"
        along = [axis for axis, size in enumerate(scales, len(sizes) - len(scales)) if size != 1]
        if len(along) > 1:
            return f"the scale, of shape {scales}, varies along more than one axis"
        axis = along[0] if along else None
        return f.DequantizeLinear(w, _scale_vector(scale, axis, f.editor), axis=axis)
    if len(sizes) != 2:
        return "the weight is not a matrix"
    axis = 0 if is_turned else 1
    is_for_columns = math.prod(scales[:-1]) == 1 and scales[-1:] in ((), (1,), (sizes[axis],))
    if result is None or result != dims(product.outputs[0]) or not is_for_columns:
        return f"the scale, of shape {scales}, is not one for each column"
    axis = axis if math.prod(scales) != 1 else None
    made = f.DequantizeLinear(w, _scale_vector(scale, axis, f.editor), axis=axis)
    return f.emit(product.op_type, [x, made], product.attributes)[0]


def _scale_vector(scale: Value, axis: int | None, editor: Editor) -> Value:
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


_ROWS = "DequantizeLinear(weight, scale, zero | None, axis=along, block_size=given)"


@rule(f"Gather(~({_ROWS} | Reshape({_ROWS}, _)), indices, axis=axis)", where={"weight": Value.is_initializer})
def gather_quantized_rows(
    f: NodeBuilder,
    node: ir.Node,
    nodes: Sequence[ir.Node],
    weight: Value,
    scale: Value,
    zero: Value | None,
    indices: Value,
    along: int,
    given: int,
    axis: int,
) -> Result:
    """Gather(DequantizeLinear(w, scale, zero), i) → (Gather(w, i) - Gather(zero, i)) * Gather(scale, i).

    Legal because DequantizeLinear computes each element in this way from its own weight, scale and zero. The weight is
    a matrix of 8 bits, with a float32 scale for each row or for each block of a row. Otherwise each run would
    dequantize all rows of an embedding. A weight of 4 bits is left as it is, because Gather does not take it.
    """
    shape, scales, batch = dims(node.inputs[0]), dims(scale), dims(indices)
    if batch is None or not shape or not scales or f.editor.function is not None:
        return None
    if any(each is not None and initializer_tensor(each) is None for each in (weight, scale, zero)):
        return None
    if weight.dtype not in (DataType.INT8, DataType.UINT8) or scale.dtype != DataType.FLOAT:
        return None
    block = _block_size(shape, dims(weight) or (), scales, along % 2, given if len(nodes) == 2 else None)
    if not block:
        return None
    if axis not in (0, -2):
        return "it gathers columns"
    rows, blocks = shape[0], int(shape[1]) // block

    def gathered(value: Value, size: int) -> Value:
        """Returns the gathered rows, each of (blocks, size), or (size) if there is one block."""
        sizes = (rows, *([blocks] if blocks > 1 else []), size)
        return f.Gather(value if dims(value) == sizes else f.Reshape(value, sizes), indices, axis=0)

    found = f.Cast(gathered(weight, block), to=DataType.FLOAT)
    if zero is not None:
        found = f.Sub(found, f.Cast(gathered(zero, 1), to=DataType.FLOAT))
    product = f.Mul(found, gathered(scale, 1))
    return product if blocks == 1 else f.Reshape(product, [*(0 for _ in batch), shape[1]])  # 0 keeps the size of a dim


def _block_size(
    shape: Sequence[int | str], sizes: Sequence[int | str], scales: Sequence[int | str], axis: int, given: int | None
) -> int:
    """Returns how many columns of a row of the matrix share a scale; 0 if the weight has another form.

    Below opset 21, the blocks may be rows of a taller matrix, which a Reshape lays side by side.

    Args:
        shape: the shape of the matrix.
        sizes: the shape of the quantized weight.
        scales: the shape of the scales.
        axis: the axis of the weight along which the scales vary.
        given: the size of the blocks, 0 if there are none; None if the matrix comes from a Reshape.
    """
    if len(shape) != 2 or len(sizes) != 2:
        return 0
    columns = int(shape[1])
    if len(scales) == 2:
        block = columns // (int(scales[1]) or 1)
        return block if axis == 1 and block == given and not columns % block else 0
    block = int(sizes[1])
    return block if len(scales) == 1 and axis == 0 and block > 0 and columns % block == 0 else 0
