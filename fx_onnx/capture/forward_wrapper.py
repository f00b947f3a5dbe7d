"""Wraps a module's forward while it is captured, for facts that torch.export cannot learn from its arguments.

torch.export does not see an assignment ``self.state = new`` to a buffer of a submodule, nor ``self.weight.data = new``.
The new value would be lost, and every call of the program would start with the same state. So all buffers are treated
alike: at the end of the forward, what it has assigned is written in place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.capture.patches.tensor_data import replaced_data
from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.requests import pytrees
from fx_onnx.requests.dynamic_shapes import TensorRequest
from fx_onnx.torch_internals.torch_private import pytree, storage_id
from fx_onnx.torch_internals.trace_private import is_recorded

__all__ = ["wrap_forward", "write_in_place"]


@contextmanager
def wrap_forward(
    model: torch.nn.Module,
    kwargs: dict[str, Any],
    inputs: Sequence[TensorRequest],
    caller_autocast: Callable[[], AbstractContextManager[Any]],
    mode: AbstractContextManager[Any],
    *,
    float_leaves: Sequence[int] = (),
    register_outputs: bool,
    strict: bool,
) -> Iterator[None]:
    """Replaces the forward of ``model`` within the context, if at least one of these is needed.

    - The forward runs in a mode, which torch's own code around the forward does without.
    - The arguments of ``**kwargs`` become parameters with their own names. torch.export checks dynamic shapes against
      ``kwargs`` as one argument but then reads them by keyword, so it accepts no form of them for ``**kwargs``.
    - Dims with the same name become one dim.
    - Floats that were requested as dynamic arrive as 0-d tensors and become symbolic floats.
    - Autocast that is on around the export becomes a region of the forward.
    - The classes of the outputs are registered as pytree containers.
    - Assigned buffers are written in place, and so are weights, buffers and arguments to whose ``data`` the forward
      assigns. Strict mode cannot trace this. A buffer that is None before the forward is no state of the program;
      ``python_state.py`` tells whether later results may depend on it.

    Warns (OnnxExporterWarning) when the forward runs, if it assigns to a buffer a tensor of another shape or dtype, or
    no tensor. A buffer of the program keeps its shape and its dtype from call to call, so such a value is lost.

    Args:
        model: The module to capture.
        kwargs: The example keyword arguments.
        inputs: What was requested of each tensor among the arguments.
        caller_autocast: A function that returns a context in which autocast is as in the caller's code.
        mode: The mode, which the context enters each time.
        float_leaves: The indices of dynamic floats among the leaves of ``(args, kwargs)``.
        register_outputs: Whether to register the dataclasses and caches that the forward returns.
        strict: Whether torch.export traces in strict mode.

    Raises:
        CaptureError: The forward assigns a tensor to one of several names of a buffer, or a tensor of another shape to
            the data of a weight, a buffer or an argument. The forward raises it.
    """
    forward, signature = model.forward, inspect.signature(model.forward)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    extra = [name for name in kwargs if name not in signature.parameters] if takes_any else []
    equal_axes = _equal_axes(inputs)
    has_facts = extra or equal_axes or float_leaves or register_outputs or caller_autocast is not nullcontext
    if strict and not has_facts:
        yield
        return

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        for (one, axis), (other, other_axis) in equal_axes:  # torch cannot know this if no operator compares them
            torch._check(tensors[one].shape[axis] == tensors[other].shape[other_axis])
        if float_leaves:
            leaves = [leaf.item() if index in float_leaves else leaf for index, leaf in enumerate(leaves)]
            args, kwargs = pytree.tree_unflatten(leaves, tree)
        buffers = [] if strict else list(_buffers(model))
        with caller_autocast(), mode:
            result = forward(*args, **kwargs)
        if register_outputs:
            pytrees.register(result)
        if strict:
            return result
        given = [*leaves, *model.parameters(), *(buffer for *_, buffer in buffers)]
        known = {id(tensor): tensor for tensor in given if isinstance(tensor, torch.Tensor)}
        return write_in_place((*_assigned_buffers(buffers), *replaced_data(known.values())), result)

    own = [formal for formal in signature.parameters.values() if not (extra and formal.kind is formal.VAR_KEYWORD)]
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in extra]
    vars(wrapped)["__signature__"] = signature.replace(parameters=[*own, *named])
    with replace_attribute(model, "forward", wrapped):
        yield


def _equal_axes(inputs: Sequence[TensorRequest]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Returns pairs of (number of the tensor, axis) whose dims have one name, the first of that name on the left."""
    named = [
        (name, (number, axis)) for number, request in enumerate(inputs) for axis, name in request.axes.items() if name
    ]
    first = dict(reversed(named))
    return [(first[name], pair) for name, pair in named if first[name] != pair]


# --- assigned buffers and data ----------------------------------------------------------------------------------------

_Buffer = tuple[str, torch.nn.Module, torch.Tensor]  # the path, the module and the tensor of one name of a buffer


def _buffers(model: torch.nn.Module) -> Iterator[_Buffer]:
    for path, module in model.named_modules():
        for name, buffer in module.named_buffers(path, recurse=False, remove_duplicate=False):
            yield name, module, buffer


def write_in_place(writes: Iterable[tuple[torch.Tensor, torch.Tensor]], result: Any) -> Any:
    """Writes what a forward has assigned; returns its result, with copies of what a write would change.

    Args:
        writes: The tensors and their new values, which may be views of old values, as the result may be.
        result: The result of the forward.
    """
    copies = [(old, new.clone()) for old, new in writes]
    written = {storage_id(old) for old, _ in copies}
    result = pytree.tree_map_only(
        torch.Tensor, lambda leaf: leaf.clone() if storage_id(leaf) in written else leaf, result
    )
    for old, new in copies:
        old.copy_(new)
    return result


def _assigned_buffers(buffers: list[_Buffer]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
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
        if not is_recorded(buffer):  # a run with other sizes, which are no part of the program
            continue
        text = f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
        warn(
            f"The forward assigns {text} to the buffer {path!r}, which is {buffer.dtype} {list(buffer.shape)}. A "
            "buffer of a program keeps its shape and dtype, so every call starts with the old value.",
            MessageId.BUFFER_ASSIGNMENT,
        )
