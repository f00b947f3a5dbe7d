"""Tensors whose content is known at export: constants if they are small, nodes that compute them otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx.onnx_model import dtypes
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.translation.emitter import Emitter, Scalar
from fx_onnx.translations._movement import MAX_CONSTANT_ELEMENTS


def scale_and_bias(
    op: Emitter, weight: Value | None, bias: Value | None, channels: Sequence[Size], dtype: DataType
) -> tuple[Value, Value]:
    """Returns the weight and the bias of a normalization; ones and zeros of ``dtype`` where they are missing."""
    return (
        filled(op, channels, 1.0, dtype) if weight is None else weight,
        filled(op, channels, 0.0, dtype) if bias is None else bias,
    )


def filled(op: Emitter, sizes: Sequence[Size], number: Scalar, dtype: DataType, like: Value | None = None) -> Value:
    """Returns a tensor of ``sizes`` filled with ``number``: a constant if it is small, else ConstantOfShape.

    A symbolic number is expanded. ``like`` is a value of the same sizes (see ``_shape``).
    """
    number = symbolic_sizes.static(number)
    count = int(np.prod([float(size) for size in sizes])) if all(isinstance(size, int) for size in sizes) else None
    if isinstance(number, symbolic_sizes.SymbolicNumber):
        return op.Expand(op.cast(number, dtype), _shape(op, sizes, like)) if sizes else op.cast(number, dtype)
    if dtype == DataType.BOOL or dtypes.is_integer(dtype):
        number = bool(number) if dtype == DataType.BOOL else dtypes.wrapped(int(number), dtype)
    if count is not None and count <= MAX_CONSTANT_ELEMENTS:
        return op.constant(np.full(tuple(sizes), number, dtype=dtype.numpy()), dtype)
    content = ir.Tensor(np.full((1,), number, dtype=dtype.numpy()), dtype=dtype)
    return op.ConstantOfShape(_shape(op, sizes, like), value=content)


def _shape(op: Emitter, sizes: Sequence[Size], like: Value | None) -> Value:
    """Returns the sizes as a 1-D value.

    One Shape node of ``like``, a value of these sizes, gives them if several are symbolic, or if one is written as a
    number that is negative for empty inputs.
    """
    symbolic = [size for size in sizes if not isinstance(size, int)]
    if like is not None and (len(symbolic) > 1 or any(map(symbolic_sizes.is_written_as_negative, symbolic))):
        return op.Shape(like)
    return op.shape(sizes)


def torch_constant(op: Emitter, tensor: torch.Tensor) -> Value:
    """Returns a constant with the content of ``tensor``, which torch computed, in the dtype of the FX result."""
    dtype = op.out_dtype
    plain = tensor if tensor.dtype in _NUMPY_DTYPES else tensor.double()
    return op.constant(plain.numpy().astype(dtype.numpy()), dtype)


_NUMPY_DTYPES = frozenset({torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.int16,
                           torch.int8, torch.uint8, torch.bool})  # fmt: skip
