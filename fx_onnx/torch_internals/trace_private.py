"""Private names of torch that act on a trace that torch.export is recording; see ``torch_private.py``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch

from fx_onnx.torch_internals.threads import in_this_thread

__all__ = [
    "is_recorded",
    "left_transforms_undone",
    "recorded_constant",
    "recorded_node",
    "recorded_number",
    "replaced_fake_kernels",
    "share_trace",
    "slice_bound",
    "undispatched",
]


@contextmanager
def left_transforms_undone() -> Iterator[None]:
    """Ends the transforms of ``torch.func`` that a block begins and, because of an exception, does not end.

    A captured graph begins and ends vmap with nodes, and the calls after an exception would run inside of it. Without
    torch's functions: AttributeError.
    """
    functorch = torch._C._functorch
    depth = functorch.get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        with suppress(RuntimeError):  # torch 2.11 raises it after it has ended the outermost one
            functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)


def is_recorded(tensor: torch.Tensor) -> bool:
    """Returns whether the capture that is in progress has recorded the tensor; see ``share_trace``."""
    return tensor in _traced_tensors()


def recorded_node(tensor: torch.Tensor) -> torch.fx.Node | None:
    """Returns the node with which the capture that is in progress has recorded the tensor; None if it has not.

    Without torch's functions, no tensor has one, and a value that depends on the input counts as a constant.
    """
    proxy = getattr(_traced_tensors().get(tensor), "proxy", None)
    return None if proxy is None else proxy.node


def recorded_number(number: Any) -> torch.fx.Node | None:
    """Returns the node with which the capture that is in progress has recorded a symbolic number; None if it has not.

    Without torch's functions, no number has one, and a comparison of a size with 0 has no line.

    Args:
        number: what torch computes with, the ``node`` of a ``SymInt`` or another symbolic number.
    """
    tracker = getattr(_tracer(), "symnode_tracker", None)
    recorded = None if tracker is None else tracker.get(SimpleNamespace(node=number))
    return None if recorded is None else getattr(recorded.force(), "node", None)


def recorded_constant(node: torch.fx.Node) -> torch.Tensor | None:
    """Returns the tensor of a node that reads a constant in the capture that is in progress; None if it is not known.

    Without torch's functions, no constant is known, and a condition on one is refused.
    """
    return getattr(getattr(_tracer(), "root", None), str(node.target), None) if node.op == "get_attr" else None


def share_trace(recorded: torch.Tensor, tensor: torch.Tensor, *, again: bool = False) -> None:
    """Makes a capture that is in progress treat ``tensor`` as the tensor ``recorded``, which it has recorded.

    A tensor that the capture has recorded itself stays as it is, unless ``again``.

    No public function reads a trace that is not finished. Without torch's functions, nothing is shared, and a model
    that computes gradients is refused.
    """
    tensors = _traced_tensors()
    if recorded in tensors and (again or tensor not in tensors):
        tensors[tensor] = tensors[recorded]


def _tracer() -> Any:
    tracing = sys.modules.get("torch.fx.experimental.proxy_tensor")
    mode = tracing.get_proxy_mode() if tracing is not None and hasattr(tracing, "get_proxy_mode") else None
    return getattr(mode, "tracer", None)


def _traced_tensors() -> Any:
    return getattr(_tracer(), "tensor_tracker", {})


@contextmanager
def undispatched() -> Iterator[None]:
    """Hides a call from the modes that record a capture. An assignment to ``Tensor.data`` asks an operator first.

    Without torch's guards: AttributeError.
    """
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.PreDispatch)
    with torch._C._DisableTorchDispatch(), torch._C._ExcludeDispatchKeyGuard(keys):
        yield


@contextmanager
def replaced_fake_kernels(makers: Mapping[Any, Callable[[Any], Callable[..., Any]]]) -> Iterator[None]:
    """Replaces what fake tensors call for operators that they compute themselves, in the current thread.

    Without torch's table of these functions: ImportError or AttributeError.

    Args:
        makers: by operator, what makes the replacement from torch's function.
    """
    table = import_module("torch._subclasses.fake_impls").op_implementations_dict
    before = {operator: table[operator] for operator in makers}
    table.update(
        {operator: in_this_thread(make(before[operator]), before[operator]) for operator, make in makers.items()}
    )
    try:
        yield
    finally:
        table.update(before)


def slice_bound(size: Any, index: Any) -> Any:
    """Returns the position of a bound of a slice in an axis; None where torch does not know it.

    A capture replaces torch's function, so it is looked up at each call. Without it: ImportError or AttributeError.
    """
    return import_module("torch._subclasses.fake_impls")._compute_slice_index(size, index)
