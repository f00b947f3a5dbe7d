"""Legalization of operators that move elements: axes, shapes, repetition, blocks and triangles."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import (
    size_of,
)
from fx_onnx.passes.legalization.table import DEFAULT, WIDE, legalizes
from fx_onnx.passes.matchers import is_read_by
from fx_onnx.passes.rules import Result

__all__ = ["legalize_pads"]


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
