"""Turns assignments to the buffers of submodules into writes in place while torch captures.

torch.export does not see an assignment ``self.state = new`` to a buffer of a submodule. The new value would be lost,
and every call of the program would start with the same state. For a buffer of the module that it captures, torch.export
writes the new value in place, which also changes results that are the old value.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.core.errors import CaptureError
from fx_onnx.core.findings import warn
from fx_onnx.core.messages import MessageId
from fx_onnx.core.torch_private import pytree, storage_id

__all__ = ["write_assigned_buffers"]


@contextmanager
def write_assigned_buffers(model: torch.nn.Module) -> Iterator[None]:
    """Replaces the forward of ``model`` within the context: at its end, assigned buffers are written in place.

    Warns (OnnxExporterWarning) when the forward runs, if it assigns a tensor of another shape or dtype, or no tensor. A
    buffer of the program keeps its shape and its dtype from call to call, so such a value is lost.

    Raises:
        CaptureError: The forward assigns a tensor to one of several names of a buffer. The forward raises it.
    """
    owners = [(path, module) for path, module in model.named_modules() if any(True for _ in _buffers(module))]
    if not owners:
        yield
        return
    forward = model.forward

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        tied = _tied_buffers(model)
        before = [(path, module, dict(_buffers(module))) for path, module in owners]
        result = forward(*args, **kwargs)
        _refuse_separated_names(tied)
        assigned = [
            (f"{path}.{name}".removeprefix("."), module, name, buffer)
            for path, module, buffers in before
            for name, buffer in buffers.items()
            if getattr(module, name, None) is not buffer
        ]
        if not assigned:
            return result
        # Results and new values may be views of the old values, which the writes change.
        new = [_new_value(path, getattr(module, name, None), buffer) for path, module, name, buffer in assigned]
        written = {storage_id(buffer) for *_, buffer in assigned}
        result = pytree.tree_map(lambda leaf: leaf.clone() if _is_in(leaf, written) else leaf, result)
        for (_, module, name, buffer), value in zip(assigned, new, strict=True):
            if value is not None:
                buffer.copy_(value)
            setattr(module, name, buffer)
        return result

    wrapped.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    with replace_attribute(model, "forward", wrapped):
        yield


def _buffers(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return module.named_buffers(recurse=False)


def _tied_buffers(model: torch.nn.Module) -> list[list[tuple[str, torch.nn.Module, torch.Tensor]]]:
    """Returns the buffers with several names: for each buffer the path, the module and the tensor of each name."""
    names: dict[int, list[tuple[str, torch.nn.Module, torch.Tensor]]] = {}
    for path, module in model.named_modules():
        for name, buffer in module.named_buffers("", recurse=False, remove_duplicate=False):
            names.setdefault(id(buffer), []).append((f"{path}.{name}" if path else name, module, buffer))
    return [each for each in names.values() if len(each) > 1]


def _refuse_separated_names(tied: list[list[tuple[str, torch.nn.Module, torch.Tensor]]]) -> None:
    """Raises a CaptureError if names of one buffer are names of several tensors now."""
    for names in tied:
        for path, module, buffer in names:
            if getattr(module, path.rpartition(".")[2], None) is not buffer:
                others = ", ".join(repr(other) for other, *_ in names if other != path)
                raise CaptureError(
                    f"The forward assigns a new tensor to the buffer {path!r}, which is also registered as {others}; "
                    "write to it in place, or register a clone."
                )


def _new_value(path: str, value: Any, buffer: torch.Tensor) -> torch.Tensor | None:
    """Returns a copy of the tensor that was assigned to a buffer; None, with a warning, if it does not fit."""
    if isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (buffer.shape, buffer.dtype):
        return value.clone()
    found = f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
    warn(
        f"The forward assigns {found} to the buffer {path!r}, which is {buffer.dtype} {list(buffer.shape)}. A buffer "
        "of a program keeps its shape and dtype, so every call starts with the old value.",
        MessageId.BUFFER_ASSIGNMENT,
    )
    return None


def _is_in(leaf: Any, storages: set[int]) -> bool:
    return isinstance(leaf, torch.Tensor) and storage_id(leaf) in storages
