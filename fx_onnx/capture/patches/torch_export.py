"""Confines to one thread what torch.export itself replaces in the whole process while it captures.

torch.export replaces methods of ``nn.Module``, ``max``, ``min`` and ``math.pow``, makes ``torch.compiler.is_compiling``
return True, and gives the module fake weights. Another thread that runs the same model meanwhile would record its calls
in the trace, or get fake tensors as results. Here the other threads keep the originals.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import get_ident
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from fx_onnx.capture.patches.module_hooks import watched
from fx_onnx.capture.patches.patching import (
    Added,
    Around,
    InAllThreads,
    InOtherThreads,
    Patch,
    Way,
    exchange_attribute,
    replace_attribute,
)
from fx_onnx.torch_internals.threads import attribute_of_thread, in_this_thread, is_current
from fx_onnx.torch_internals.torch_differences import newer_than, older_than
from fx_onnx.torch_internals.torch_private import control_flow_settings, tensor_min_max

__all__ = ["PATCHES", "dicts_of_this_thread", "set_tracing_flags", "weights_of_this_thread"]


def _confined_patcher(new_patcher: Callable[[], AbstractContextManager[Any]]) -> Callable[[], Any]:
    """Confines the methods that torch.fx replaces, such as ``nn.Module.__call__``."""

    @contextmanager
    def confined() -> Iterator[Any]:
        with new_patcher() as patcher:
            patch, patch_method = patcher.patch, patcher.patch_method

            def confined_patch(frame_dict: dict[str, Any], name: str, new_fn: Callable[..., Any], **rest: Any) -> None:
                original = frame_dict[name] if name in frame_dict else getattr(builtins, name)
                patch(frame_dict, name, in_this_thread(new_fn, original), **rest)

            def confined_method(cls: type[Any], name: str, new_fn: Callable[..., Any], **rest: Any) -> None:
                replacement = watched(new_fn) if name == "__call__" else new_fn
                patch_method(cls, name, in_this_thread(replacement, getattr(cls, name)), **rest)

            patcher.patch, patcher.patch_method = confined_patch, confined_method
            yield patcher

    return confined


def _confined_builtins(override: Callable[[], Any]) -> Callable[[], Any]:
    """Confines ``max``, ``min`` and ``math.pow``, which torch.export replaces by functions that accept tensors."""
    compute = tensor_min_max()
    if compute is None:
        return override

    @contextmanager
    def confined() -> Iterator[None]:
        largest = functools.partial(compute, real_callable=max, tensor_callable=torch.maximum)
        smallest = functools.partial(compute, real_callable=min, tensor_callable=torch.minimum)
        with (
            replace_attribute(builtins, "max", largest),
            replace_attribute(builtins, "min", smallest),
            replace_attribute(math, "pow", lambda x, y: x**y),
        ):
            yield

    return confined


def _modes_of_thread(state: Callable[[], Any]) -> Callable[[], Any]:
    """Confines the modes that record the trace. torch.compile in another thread would look them up too."""
    thread, kind = get_ident(), type(state())
    others = type(kind.__name__, (threading.local, kind), {})()  # each thread initializes it as its own

    def state_of_thread() -> Any:  # without a dispatcher, because each call of an operator calls it several times
        return state() if get_ident() == thread else others

    return state_of_thread


# --- flags ------------------------------------------------------------------------------------------------------------

_is_tracing = False  # only one thread captures at a time, and only this thread reads the variable


@contextmanager
def set_tracing_flags() -> Iterator[None]:
    """Replaces the contexts in which ``torch.compiler.is_compiling`` and ``is_exporting`` are true in all threads."""
    global _is_tracing  # noqa: PLW0603  a flag of the process, as torch's own
    before, _is_tracing = _is_tracing, True
    try:
        yield
    finally:
        _is_tracing = before


def _or_tracing(flag: Callable[[], bool]) -> Callable[[], bool]:
    def is_set() -> bool:
        return _is_tracing or flag()

    return is_set


# --- weights ----------------------------------------------------------------------------------------------------------

_DICTS = ("_parameters", "_buffers")

# The lists that an RNN, LSTM or GRU module keeps beside its parameters. It replaces them in its forward if a parameter
# is another tensor than before. Here the current thread computes them from its own parameters.
_LISTS: dict[str, Callable[[nn.RNNBase], list[Any]]] = {
    "_flat_weights": lambda module: [getattr(module, name, None) for name in module._flat_weights_names],
    "_flat_weight_refs": lambda module: [None] * len(module._flat_weights_names),  # no parameter is another one
}


def _confined_weights(reparametrize: Callable[..., AbstractContextManager[Any]]) -> Callable[..., Any]:
    """Confines the fake weights that torch.export gives to the module."""

    @contextmanager
    def confined(module: nn.Module, *args: Any, **kwargs: Any) -> Iterator[Any]:
        with weights_of_this_thread(module), reparametrize(module, *args, **kwargs) as result:
            yield result

    return confined


@contextmanager
def weights_of_this_thread(module: nn.Module) -> Iterator[None]:
    """Gives the current thread its own parameters and buffers of the module and its submodules within the context.

    They are those of the module at first. What the thread assigns is lost when the context ends. What other threads
    assign meanwhile stays.
    """
    modules = list(module.modules())
    with ExitStack() as stack:
        stack.enter_context(dicts_of_this_thread(modules, _DICTS))
        for name in _LISTS if any(isinstance(submodule, nn.RNNBase) for submodule in modules) else ():
            computed = attribute_of_thread(name, _LISTS[name], lambda module, value: None)
            stack.enter_context(exchange_attribute(nn.RNNBase, name, computed))
        yield


@contextmanager
def dicts_of_this_thread(modules: Iterable[nn.Module], names: Iterable[str]) -> Iterator[None]:
    """Gives the current thread its own content of some dicts of modules within the context."""
    originals: list[tuple[dict[str, Any], str, Any]]
    originals = [(vars(module), name, vars(module).get(name)) for module, name in itertools.product(modules, names)]
    shared = [entry for entry in originals if isinstance(entry[2], dict) and not isinstance(entry[2], _DictOfThread)]
    try:
        for attributes, name, content in shared:
            attributes[name] = _DictOfThread(content)
        yield
    finally:
        for attributes, name, content in shared:
            attributes[name] = content


class _DictOfThread(dict[str, Any]):
    """A dict with one content for the thread that created it, and another content for all other threads.

    The other threads read and write the original dict.
    """

    def __init__(self, original: dict[str, Any]) -> None:
        super().__init__(original)  # for code in C that bypasses the methods
        self._thread, self._own, self._original = get_ident(), original.copy(), original

    def __reduce__(self) -> tuple[Any, ...]:
        content = _content(self)
        return type(content), (), None, None, iter(content.items())


def _content(view: _DictOfThread) -> dict[str, Any]:
    return view._own if is_current(view._thread) else view._original


def _delegate(name: str) -> Callable[..., Any]:
    def method(self: _DictOfThread, *args: Any, **kwargs: Any) -> Any:
        return getattr(_content(self), name)(*args, **kwargs)

    return method


for _name in (
    "__contains__", "__delitem__", "__eq__", "__getitem__", "__ior__", "__iter__", "__len__", "__ne__", "__or__",
    "__repr__", "__reversed__", "__ror__", "__setitem__", "clear", "copy", "get", "items", "keys", "pop", "popitem",
    "setdefault", "update", "values",
):  # fmt: skip
    setattr(_DictOfThread, _name, _delegate(_name))


# --- the table --------------------------------------------------------------------------------------------------------

_ANOTHER_THREAD = "Another thread that runs a model"
_FAILED = "torch prints the graph of each failed attempt, which the error has as partial_fx_graph."
_FLAG = f"{_ANOTHER_THREAD} would take the branches of a capture."
PATCHES = (
    Patch(
        "torch.fx._symbolic_trace:_new_patcher",
        Around(_confined_patcher),
        f"{_ANOTHER_THREAD} would take part in the trace.",
    ),
    Patch(
        "torch.export._trace:_override_builtin_ops",
        Around(_confined_builtins),
        "max, min and math.pow would be functions for tensors in all threads.",
    ),
    Patch(
        "torch.nn.utils.stateless:_reparametrize_module",
        Around(_confined_weights),
        f"{_ANOTHER_THREAD} would see the fake weights of the capture.",
    ),
    Patch(
        "torch._ops:mode_stack_state_for_pre_dispatch",
        InAllThreads(_modes_of_thread),
        "torch.compile in another thread would fail, because it looks up the modes of the capture.",
    ),
    Patch("torch.compiler:is_compiling", Around(_or_tracing), _FLAG),
    Patch("torch.compiler:is_exporting", Around(_or_tracing), _FLAG),
    Patch("torch.export._trace:_compiling_state_context", set_tracing_flags, _FLAG),
    Patch(
        "torch.compiler:_compile_session_context", set_tracing_flags, _FLAG, versions=newer_than("no compile session")
    ),
    Patch("torch._dynamo.eval_frame:_compiling_state_context", set_tracing_flags, _FLAG, strict=True),
    Patch("torch._dynamo.functional_export:_compiling_state_context", set_tracing_flags, _FLAG, strict=True),
    Patch("torch.fx._symbolic_trace:is_fx_tracing", InOtherThreads(bool), _FLAG),
    Patch("torch.fx._symbolic_trace:is_fx_symbolic_tracing", InOtherThreads(bool), _FLAG),
    Patch(
        "torch._higher_order_ops.utils:_set_compilation_env",
        Way(lambda owner, name: InOtherThreads(control_flow_settings()).replace(owner, name)),
        "torch.cond in another thread would save and restore a flag of the capture.",
        upstream="https://github.com/pytorch/pytorch/issues/144360",  # for which torch sets the flag
    ),
    Patch("torch.export._trace:print", Added(lambda *_, **__: None), _FAILED),
    Patch("torch.export._trace:log.handle", lambda record: None, _FAILED),
    Patch(
        "torch.export._trace:register_buffer_assignment_hook",
        lambda module, names: SimpleNamespace(remove=lambda: None),
        "It finds the input of a buffer by counting buffers, also those that are None.",
        strict=False,
    ),
    Patch(
        "torch._functorch._aot_autograd.utils:is_opaque_type",
        Around(lambda is_opaque: lambda value: is_opaque(type(value))),
        "It takes a class, but gets an output, which may have no hash.",
        versions=older_than("outputs need a hash"),
    ),
)
# What torch.export sets in all threads (torch itself tells nobody which thread captures), prints and gets wrong.
