"""Notes for the legalization of operators that a runtime cannot run on an empty tensor."""

from __future__ import annotations

from onnx_ir import Value

from fx_onnx.onnx_model import metadata
from fx_onnx.translation.emitter import Emitter

__all__ = ["note_dynamic_axes"]


def note_dynamic_axes(op: Emitter, x: Value, y: Value) -> None:
    """Notes at the node that computes y from x which sizes of x are dynamic."""
    if (node := y.producer()) is not None:
        node.meta[metadata.DYNAMIC_AXES] = [not isinstance(size, int) for size in op.sizes(x)]
