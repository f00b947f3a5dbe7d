"""Patch for ``Tensor.data``, which torch does not trace: its value would become a constant without values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import get_ident
from typing import Any

import torch

from fx_onnx.capture.diagnostics import calling_line
from fx_onnx.capture.patches.patching import InAllThreads, Patch
from fx_onnx.messages.errors import CaptureError
from fx_onnx.torch_internals.threads import is_current
from fx_onnx.torch_internals.torch_private import FakeTensor, storage_id
from fx_onnx.torch_internals.trace_private import share_trace, undispatched

__all__ = ["PATCHES", "replaced_data"]

_REPLACED = "fx_onnx_replaced_data"
"""The attribute of a traced tensor that has its first data, and the line that has replaced it."""


def _traced_data(original: Any) -> property:
    """Makes ``tensor.data`` the same as ``tensor.detach()``, which shares the memory too, in the current thread.

    After ``tensor.data = value`` the trace has the tensor as ``value.detach()``, and views of its first data as before.
    """
    thread = get_ident()

    def read(tensor: torch.Tensor) -> Any:
        is_traced = is_current(thread) and torch.compiler.is_exporting()
        return tensor.detach() if is_traced else original.__get__(tensor)

    def assign(tensor: torch.Tensor, value: torch.Tensor) -> None:
        if not is_current(thread) or not _has_no_values(value):
            original.__set__(tensor, value)
            return
        if not _has_no_values(tensor):
            raise CaptureError(
                "The forward assigns to the data of a tensor that is neither a weight nor a buffer"
                f"{calling_line()}; register it as a buffer."
            )
        vars(tensor).setdefault(_REPLACED, (tensor.detach(), calling_line()))
        value = value.detach()
        share_trace(value, tensor, again=True)
        with undispatched():
            original.__set__(tensor, value)

    return property(read, assign)


def _has_no_values(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, FakeTensor) or tensor.is_meta


PATCHES = (Patch("torch:Tensor.data", InAllThreads(_traced_data), "It would become a constant.", strict=False),)


def replaced_data(tensors: Iterable[torch.Tensor]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields the first data and the last for each tensor to whose data the forward has assigned.

    Raises:
        CaptureError: The last data have another shape or dtype.
    """
    for tensor in (value for value in tensors if _REPLACED in vars(value)):  # a question for a shape takes time
        first, line = vars(tensor).pop(_REPLACED)
        if (first.shape, first.dtype) != (tensor.shape, tensor.dtype):
            raise CaptureError(
                f"The forward gives a weight, a buffer or an argument data of another shape or dtype{line}: "
                f"{tensor.dtype} {list(tensor.shape)} for {first.dtype} {list(first.shape)}, which a program cannot "
                "keep; compute with a new tensor instead of an assignment to Tensor.data."
            )
        if storage_id(first) != storage_id(tensor):
            yield first, tensor
