"""Patch for ``Tensor.data``, which torch does not trace: its value would become a constant without values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch

from fx_onnx.capture.patches.patching import exchange_attribute
from fx_onnx.core.threads import is_current
from fx_onnx.core.torch_private import FakeTensor

__all__ = ["trace_tensor_data"]

_original: Any = torch.Tensor.data


@contextmanager
def trace_tensor_data() -> Iterator[None]:
    """Makes ``tensor.data`` the same as ``tensor.detach()``, which shares the memory too, in the current thread.

    Assigning ``tensor.data`` raises an AttributeError if the tensor is traced, because torch would leave the assignment
    out of the captured program.
    """
    thread = get_ident()

    def read(tensor: torch.Tensor) -> Any:
        is_traced = is_current(thread) and torch.compiler.is_exporting()
        return tensor.detach() if is_traced else _original.__get__(tensor)

    def assign(tensor: torch.Tensor, value: torch.Tensor) -> None:
        if isinstance(tensor, FakeTensor) and is_current(thread):
            raise AttributeError("an assignment to Tensor.data cannot be captured; write tensor.copy_(value) instead")
        _original.__set__(tensor, value)

    with exchange_attribute(torch.Tensor, "data", property(read, assign)):
        yield
