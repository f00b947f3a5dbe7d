"""Turns assignments to buffers and to ``Tensor.data`` into writes in place while torch captures.

torch.export does not see an assignment ``self.state = new`` to a buffer of a submodule, nor ``self.weight.data = new``.
The new value would be lost, and every call of the program would start with the same state. For a buffer of the module
that it captures, torch.export writes the new value in place, but into an input of the graph that it finds by counting
buffers, also those that are None. So a hook of torch.export is left out, and all buffers are treated alike.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.capture.patches.tensor_data import replaced_data
from fx_onnx.core.errors import CaptureError
from fx_onnx.core.findings import warn
from fx_onnx.core.messages import MessageId
from fx_onnx.core.torch_private import pytree, storage_id
from fx_onnx.core.trace_private import buffer_assignment_hook

__all__ = ["write_assigned_buffers"]


_Write = tuple[torch.Tensor, torch.Tensor]
"""A tensor of the program, and the tensor that the forward leaves in its place."""


@contextmanager
def write_assigned_buffers(model: torch.nn.Module) -> Iterator[None]:
    """Replaces the forward of ``model`` within the context: at its end, assigned buffers are written in place.

    So are weights, buffers and arguments to whose ``data`` the forward assigns. A buffer that is None before the
    forward is no state of the program; ``python_state.py`` tells whether later results may depend on it.

    Warns (OnnxExporterWarning) when the forward runs, if it assigns a tensor of another shape or dtype, or no tensor. A
    buffer of the program keeps its shape and its dtype from call to call, so such a value is lost.

    Raises:
        CaptureError: The forward assigns a tensor to one of several names of a buffer, or a tensor of another shape to
            the data of a weight, a buffer or an argument. The forward raises it.
    """
    forward = model.forward

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        buffers = list(_buffers(model))
        given = [*pytree.tree_leaves((args, kwargs)), *model.parameters(), *(buffer for *_, buffer in buffers)]
        result = forward(*args, **kwargs)
        tensors = {id(each): each for each in given if isinstance(each, torch.Tensor)}
        writes = [*_assigned_buffers(buffers), *replaced_data(tensors.values())]
        # Results and new values may be views of the old values, which the writes change.
        written = {storage_id(old) for old, _ in writes}
        result = pytree.tree_map_only(
            torch.Tensor, lambda leaf: leaf.clone() if storage_id(leaf) in written else leaf, result
        )
        for (old, _), value in zip(writes, [new.clone() for _, new in writes], strict=True):
            old.copy_(value)
        return result

    wrapped.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    hook = buffer_assignment_hook()
    without_hook = nullcontext() if hook is None else replace_attribute(*hook, lambda module, names: _NoHook())
    with replace_attribute(model, "forward", wrapped), without_hook:
        yield


class _NoHook:
    def remove(self) -> None:
        """Does nothing."""


def _buffers(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module, torch.Tensor]]:
    """Yields the path, the module and the tensor of each name of a buffer."""
    for path, module in model.named_modules():
        for name, buffer in module.named_buffers(path, recurse=False, remove_duplicate=False):
            yield name, module, buffer


def _assigned_buffers(buffers: list[tuple[str, torch.nn.Module, torch.Tensor]]) -> Iterator[_Write]:
    """Gives assigned buffers their old tensors again and yields what to write into them."""
    for path, module, buffer in buffers:
        name = path.rpartition(".")[2]
        value = getattr(module, name, None)
        if value is buffer:
            continue
        others = [repr(other) for other, _, same in buffers if same is buffer and other != path]
        if others:
            raise CaptureError(
                f"The forward assigns a new tensor to the buffer {path!r}, which is also registered as "
                f"{', '.join(others)}; write to it in place, or register a clone."
            )
        vars(module).pop(name, None)  # of a buffer that was deleted
        module._buffers[name] = buffer
        if isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (buffer.shape, buffer.dtype):
            yield buffer, value
            continue
        found = f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
        warn(
            f"The forward assigns {found} to the buffer {path!r}, which is {buffer.dtype} {list(buffer.shape)}. A "
            "buffer of a program keeps its shape and dtype, so every call starts with the old value.",
            MessageId.BUFFER_ASSIGNMENT,
        )
