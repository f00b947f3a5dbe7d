"""Small constants: the size up to which their values are read, and the key by which equal ones are shared."""

from __future__ import annotations

import onnx_ir as ir

MAX_CONSTANT_BYTES = 64 * 1024
"""The largest tensor whose values the exporter reads, computes or compares.

Larger tensors count as weights, which stay views of the module's storages. A larger result is not folded, because a
model should not grow by data that a few nodes can compute."""

ConstantKey = tuple[ir.DataType, tuple[int, ...], bytes]


def constant_key(tensor: ir.TensorProtocol) -> ConstantKey:
    """Returns a key that two tensors share if they have the same dtype, shape and bytes; 0.0 and -0.0 differ."""
    return tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes()
