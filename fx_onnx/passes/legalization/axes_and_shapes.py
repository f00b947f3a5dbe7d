"""Legalization of operators that move elements: axes, shapes, repetition, blocks and triangles; of empty axes."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.onnx_model import metadata
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import size_of
from fx_onnx.passes.legalization.table import DEFAULT, WIDE, legalizes
from fx_onnx.passes.matchers import dims, is_read_by
from fx_onnx.passes.rules import Result

__all__ = [
    "legalize_pads", "refuse_empty_batch", "refuse_empty_planes", "refuse_empty_slices", "refuse_empty_transposed",
    "refuse_no_heads",
]  # fmt: skip


# ---------------------------------------------------------------- blocks


@legalizes("DepthToSpace(x, blocksize=block, mode='CRD')", until=10)
@legalizes("DepthToSpace(x, blocksize=block)", lacks=(*WIDE, DataType.INT64))
def split_depth(f: NodeBuilder, x: Value, block: int) -> Result:
    """DepthToSpace(x) → Reshape, Transpose, Reshape: splits the depth, and moves the block to the spatial axes.

    Legal because this is the definition. Opset 10 has the mode DCR only.
    """
    columns_first = f.attribute("mode", "DCR") == "CRD"
    batch, depth, height, width = (size_of(f, x, axis) for axis in range(4))
    depth = f.Div(depth, [block * block])
    parts: list[Value | list[int]] = [depth, [block] * 2] if columns_first else [[block] * 2, depth]
    apart = _reshaped(f, x, batch, *parts, height, width)
    mixed = f.Transpose(apart, perm=[0, 1, 4, 2, 5, 3] if columns_first else [0, 3, 4, 1, 5, 2])
    return _reshaped(f, mixed, batch, depth, *(f.Mul(size, [block]) for size in (height, width)))


@legalizes("SpaceToDepth(x, blocksize=block)", lacks=(*WIDE, DataType.INT64))
def split_space(f: NodeBuilder, x: Value, block: int) -> Result:
    """SpaceToDepth(x) → Reshape, Transpose, Reshape: splits the spatial axes, and moves the block to the depth.

    Legal because this is the definition.
    """
    batch, depth, *spatial = (size_of(f, x, axis) for axis in range(4))
    height, width = (f.Div(size, [block]) for size in spatial)
    mixed = f.Transpose(_reshaped(f, x, batch, depth, height, [block], width, [block]), perm=[0, 3, 5, 1, 2, 4])
    return _reshaped(f, mixed, batch, f.Mul(depth, [block * block]), height, width)


def _reshaped(f: NodeBuilder, x: Value, *sizes: Value | list[int]) -> Value:
    """Reshapes x to these sizes, of which any may be 0 where the opset has a form for that."""
    return f.Reshape(x, f.Concat(*sizes, axis=0), allowzero=1 if f.editor.opset >= 14 else None)


@legalizes("Pad(x, pads, value | None)", targets=(DEFAULT,))
def legalize_pads(f: NodeBuilder, node: ir.Node, x: Value, pads: Value, value: Value | None) -> Result:
    """Pad(x, pads, value) before a pooling → Pad(x, pads, value, axes).

    Legal because ``axes`` lists all axes, which is the default. ONNX Runtime's graph optimizer merges a Pad of zeros
    into the MaxPool or AveragePool after it, but not a Pad that has ``axes``. For a MaxPool the merged form is wrong:
    its own padding is never the maximum, but a zero of the Pad is the maximum where all values are negative. An
    AveragePool may end up with more padding than its window, and then the model does not load.
    """
    if not is_read_by(node.outputs[0], "MaxPool", "AveragePool"):
        return None
    if x.shape is None:
        return "the shape of its input is unknown"
    return f.Pad(x, pads, value, list(range(len(x.shape))), **dict(node.attributes))


# ---------------------------------------------------------------- empty tensors

# Where ONNX Runtime ends the process for an empty tensor, a Reshape before the operator keeps the shape. It copies each
# size that may not be 0 and infers another one, which is an error for an empty tensor. It takes 0.1 to 0.3 µs.


@legalizes("LSTM(x, *rest)", "GRU(x, *rest)", targets=("onnxruntime",))
def refuse_empty_batch(f: NodeBuilder, node: ir.Node, x: Value, rest: Sequence[Value | None]) -> Result:
    """LSTM(x) → LSTM(Reshape(x)), where the batch is dynamic; the same for GRU, also where the steps are.

    Legal because the Reshape keeps the shape. Without a sequence, and without steps in a GRU that has no lengths, ONNX
    Runtime (1.32) ends the process. For sequences that data select, the translation adds one instead.
    """
    lengths = node.inputs[4] if len(node.inputs) > 4 else None
    needs_steps, (steps, batch, _) = node.op_type == "GRU" and lengths is None, _dynamic_axes(node, rank=3)
    if not (batch or (needs_steps and steps)):
        return None
    checked = f.Reshape(x, [0, 0, -1] if needs_steps else [-1, 0, 0])
    return f.emit(node.op_type, [checked, *rest], node.attributes, outputs=len(node.outputs))


@legalizes("InstanceNormalization(x, scale, shift)", targets=("onnxruntime",))
def refuse_empty_planes(f: NodeBuilder, x: Value, scale: Value, shift: Value) -> Result:
    """InstanceNormalization(x, scale, shift) → InstanceNormalization(Reshape(x), scale, shift), if an axis is dynamic.

    Legal because the Reshape keeps the shape. ONNX Runtime (1.32) ends the process if the planes of a value inside of
    the model are empty. Without a batch it does not, and the Reshape infers this size.
    """
    sizes = x.shape
    if sizes is None or metadata.FILLED in x.meta or all(isinstance(size, int) for size in sizes[2:]):
        return None
    filled = f.Reshape(x, [-1, *[0] * (len(sizes) - 1)])
    filled.meta[metadata.FILLED] = True
    return f.InstanceNormalization(filled, scale, shift, epsilon=f.attribute("epsilon", None))


@legalizes("Unique(x)", targets=("onnxruntime",))
def refuse_empty_slices(f: NodeBuilder, node: ir.Node, x: Value) -> Result:
    """Unique<axis>(x) → Unique<axis>(Reshape(x)), where another axis is dynamic.

    Legal because the Reshape keeps the shape. If another axis is empty, PyTorch raises an error, and ONNX Runtime
    (1.32) ends the process.
    """
    axis, are_dynamic = f.attribute("axis", None), _dynamic_axes(node)
    if axis is None or not any(are_dynamic[:axis] + are_dynamic[axis:][1:]):
        return None
    sizes = [0] * len(are_dynamic)
    sizes[axis] = -1
    return f.emit(node.op_type, [f.Reshape(x, sizes)], node.attributes, outputs=len(node.outputs))


@legalizes("Transpose(x)", targets=("onnxruntime",))
def refuse_empty_transposed(f: NodeBuilder, node: ir.Node, x: Value) -> Result:
    """Transpose(x) → Transpose(Reshape(x)), where the dynamic first axis of x becomes part of a matrix of a product.

    Legal because the Reshape keeps the shape. ONNX Runtime (1.32) makes the Transpose a part of the product, and ends
    the process if that axis is empty, as the steps of ``nn.MultiheadAttention(batch_first=False)``.
    """
    perm = [*f.attribute("perm", ())]
    inner, rank = [*range(1, len(perm) - 1)], len(perm)
    is_fused = rank > 2 and perm in ([*inner, 0, rank - 1], [*inner, rank - 1, 0])
    if not is_fused or metadata.FILLED in x.meta or not _is_factor(node.outputs[0]):
        return None
    sizes = dims(x) or [dict(zip(perm, dims(node.outputs[0]) or (), strict=False)).get(axis) for axis in range(rank)]
    if isinstance(sizes[0], int):
        return None
    copied = [0] * rank
    copied[next((axis for axis in range(1, rank) if not isinstance(sizes[axis], int)), rank - 1)] = -1
    filled = f.Reshape(x, copied)
    filled.meta[metadata.FILLED] = True
    return f.Transpose(filled, perm=perm)


@legalizes("Attention(query, key, *rest)", since=23, targets=("onnxruntime",))
def refuse_no_heads(f: NodeBuilder, node: ir.Node, query: Value, key: Value, rest: Sequence[Value | None]) -> Result:
    """Attention(query, key) → Attention(query, Reshape(key)), where the number of heads is dynamic.

    Legal because the Reshape keeps the shape. ONNX Runtime (1.32) ends the process without heads. The Reshape refuses
    no batch and no keys too, with which the Attention fails.
    """
    sizes = dims(key) or ()
    if len(sizes) < 4 or isinstance(sizes[1], int) or metadata.FILLED in key.meta:
        return None
    filled = f.Reshape(key, [0, 0, 0, -1])
    filled.meta[metadata.FILLED] = True
    return f.emit(node.op_type, [query, filled, *rest], node.attributes, outputs=len(node.outputs))


def _is_factor(value: Value) -> bool:
    """Returns whether a product of batches of matrices reads the value, or a multiple of it."""
    for use in value.uses():
        if use.node.op_type == "MatMul" and all(
            operand is None or len(operand.shape or "bmn") > 2 for operand in use.node.inputs
        ):
            return True
        if use.node.op_type in ("Mul", "Div") and _is_factor(use.node.outputs[0]):
            return True
    return False


def _dynamic_axes(node: ir.Node, rank: int = 0) -> list[bool]:
    """Returns whether each axis of the input of a node is dynamic. The node has no such note then."""
    noted: list[bool] = node.meta.pop(metadata.DYNAMIC_AXES, [False] * rank)
    return noted
