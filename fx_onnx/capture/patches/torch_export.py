"""Confines to one thread what torch.export itself replaces in the whole process while it captures.

torch.export replaces methods of ``nn.Module``, ``max``, ``min`` and ``math.pow``, makes ``torch.compiler.is_compiling``
return True, and gives the module fake weights. Another thread that runs the same model meanwhile would record its calls
in the trace, or get fake tensors as results. Here the other threads keep the originals.
"""

from __future__ import annotations

import builtins
import functools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import get_ident
from typing import Any

import torch

from fx_onnx.capture.patches.module_weights import weights_of_this_thread
from fx_onnx.capture.patches.patching import InOtherThreads, PatchTable, exchange_attribute, replace_attribute
from fx_onnx.core.threads import in_this_thread
from fx_onnx.core.torch_private import (
    compiling_states,
    control_flow_settings,
    overridden_builtins,
    patcher_of_fx,
    pre_dispatch_modes,
    reparametrize_function,
)

__all__ = ["PATCHES", "confine_torch_export"]


@contextmanager
def confine_torch_export() -> Iterator[None]:
    """Makes everything that torch.export replaces within the context act in the current thread only."""
    with ExitStack() as stack:
        for enter in (_methods_of_modules, _builtin_functions, _weights, _modes, _flags):
            stack.enter_context(enter())
        yield


@contextmanager
def _methods_of_modules() -> Iterator[None]:
    """Confines the methods that torch.fx replaces, such as ``nn.Module.__call__``."""
    patcher = patcher_of_fx()
    if patcher is None:
        yield
        return
    patch, patch_method = patcher.patch, patcher.patch_method

    def confined_patch(
        self: Any, frame_dict: dict[str, Any], name: str, new_fn: Callable[..., Any], deduplicate: bool = True
    ) -> None:
        original = frame_dict[name] if name in frame_dict else getattr(builtins, name)
        patch(self, frame_dict, name, in_this_thread(new_fn, original), deduplicate)

    def confined_patch_method(
        self: Any, cls: type[Any], name: str, new_fn: Callable[..., Any], deduplicate: bool = True
    ) -> None:
        patch_method(self, cls, name, in_this_thread(new_fn, getattr(cls, name)), deduplicate)

    with (
        replace_attribute(patcher, "patch", confined_patch),
        replace_attribute(patcher, "patch_method", confined_patch_method),
    ):
        yield


@contextmanager
def _builtin_functions() -> Iterator[None]:
    """Confines ``max``, ``min`` and ``math.pow``, which torch.export replaces by functions that accept tensors."""
    found = overridden_builtins()
    if found is None:
        yield
        return
    module, name, tensor_min_max = found

    @contextmanager
    def override() -> Iterator[None]:
        largest = functools.partial(tensor_min_max, real_callable=max, tensor_callable=torch.maximum)
        smallest = functools.partial(tensor_min_max, real_callable=min, tensor_callable=torch.minimum)
        with (
            replace_attribute(builtins, "max", largest),
            replace_attribute(builtins, "min", smallest),
            replace_attribute(math, "pow", lambda x, y: x**y),
        ):
            yield

    with replace_attribute(module, name, override):
        yield


@contextmanager
def _weights() -> Iterator[None]:
    """Confines the fake weights that torch.export gives to the module."""
    found = reparametrize_function()
    if found is None:
        yield
        return
    reparametrize: Callable[..., AbstractContextManager[Any]] = getattr(*found)

    @contextmanager
    def confined_reparametrize(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Iterator[Any]:
        with weights_of_this_thread(module), reparametrize(module, *args, **kwargs) as result:
            yield result

    with replace_attribute(*found, confined_reparametrize):
        yield


@contextmanager
def _modes() -> Iterator[None]:
    """Confines the modes that record the trace. torch.compile in another thread would look them up too."""
    found = pre_dispatch_modes()
    if found is None:
        yield
        return
    module, name, create = found
    states, thread, state = threading.local(), get_ident(), getattr(module, name)

    def state_of_other_thread() -> Any:
        if not hasattr(states, "own"):
            states.own = create()
        return states.own

    def state_of_thread() -> Any:  # without a dispatcher, because each call of an operator calls it several times
        return state() if get_ident() == thread else state_of_other_thread()

    with exchange_attribute(module, name, state_of_thread):
        yield


# --- flags ------------------------------------------------------------------------------------------------------------

_torch_is_compiling, _torch_is_exporting = torch.compiler.is_compiling, torch.compiler.is_exporting
_is_tracing = False  # only one thread captures at a time, and only this thread reads the variable


@contextmanager
def _flags() -> Iterator[None]:
    """Confines the flags of ``torch.compiler``, which torch.export sets while it traces."""

    @contextmanager
    def set_flags() -> Iterator[None]:
        global _is_tracing  # noqa: PLW0603  a flag of the process, as torch's own
        before, _is_tracing = _is_tracing, True
        try:
            yield
        finally:
            _is_tracing = before

    with ExitStack() as stack:
        for module, name in compiling_states():
            stack.enter_context(replace_attribute(module, name, set_flags))
        yield


def _is_compiling() -> bool:
    """Replaces ``torch.compiler.is_compiling``."""
    return _is_tracing or _torch_is_compiling()


def _is_exporting() -> bool:
    """Replaces ``torch.compiler.is_exporting``."""
    return _is_tracing or _torch_is_exporting()


def _false() -> bool:
    return False


PATCHES: PatchTable = {
    ("torch.compiler", "is_compiling"): _is_compiling,
    ("torch.compiler", "is_exporting"): _is_exporting,
    ("torch.fx._symbolic_trace", "is_fx_tracing"): InOtherThreads(_false),
    ("torch.fx._symbolic_trace", "is_fx_symbolic_tracing"): InOtherThreads(_false),
    ("torch._higher_order_ops.utils", "_set_compilation_env"): InOtherThreads(control_flow_settings),
}
"""The flags that torch.export sets. torch itself sets them in all threads."""
