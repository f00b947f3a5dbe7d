"""Small constants: the size up to which they are read, how they are computed, and the key that equal ones share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy.typing as npt
import onnx_ir as ir
import torch

from fx_onnx.torch_internals.torch_private import unset_fake_temporarily

MAX_CONSTANT_BYTES = 64 * 1024
"""The largest tensor whose values the exporter reads, computes or compares.

Larger tensors count as weights, which stay views of the module's storages. A larger result is not folded, because a
model should not grow by data that a few nodes can compute."""

ConstantKey = tuple[ir.DataType, tuple[int, ...], bytes]


def constant_key(tensor: ir.TensorProtocol) -> ConstantKey:
    """Returns a key that two tensors share if they have the same dtype, shape and bytes; 0.0 and -0.0 differ."""
    return tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes()


def array_key(array: npt.NDArray[Any]) -> ConstantKey:
    """Returns the ``constant_key`` of the tensor that an array becomes, which takes several times as long to make."""
    dtype = ir.DataType.from_numpy(array.dtype)
    if dtype.bitwidth < 8:  # a tensor packs its elements
        return constant_key(ir.Tensor(array))
    return dtype, array.shape, array.tobytes()


@contextmanager
def computing_constants() -> Iterator[None]:
    """Lets torch compute on real tensors, in one thread, because the last bits of a sum depend on the threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad(), unset_fake_temporarily():
            yield
    finally:
        torch.set_num_threads(threads)
