"""Measures the time that each module takes while torch.export traces it, for the report."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import get_ident
from typing import Any

import torch

from fx_onnx.core.threads import is_current

__all__ = ["measure_modules", "time_modules"]

_measured: ContextVar[dict[str, float] | None] = ContextVar("fx_onnx_module_seconds", default=None)


@contextmanager
def measure_modules() -> Iterator[dict[str, float]]:
    """Yields the dict that receives path → seconds for each module that a capture within the context traces.

    The seconds of a module include those of its inner modules. A module that is called twice has the sum.
    """
    seconds: dict[str, float] = {}
    token = _measured.set(seconds)
    try:
        yield seconds
    finally:
        _measured.reset(token)


@contextmanager
def time_modules(model: torch.nn.Module, strict: bool) -> Iterator[None]:
    """Measures the modules that the current thread enters within the context, if ``measure_modules`` asks for it.

    The hooks are removed afterwards. Where dynamo traces, in strict mode and in the branches of torch.cond, nothing is
    measured. Modules of TorchScript have no hooks.
    """
    seconds = _measured.get()
    if seconds is not None:
        seconds.clear()  # a capture may be repeated, and the last one counts
    if seconds is None or strict:
        yield
        return
    thread, started = get_ident(), list[float]()
    hooks = []
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            continue

        def enter(*_: Any) -> None:
            if not torch.compiler.is_dynamo_compiling() and is_current(thread):
                started.append(time.perf_counter())

        def leave(*_: Any, path: str = path) -> None:
            if not torch.compiler.is_dynamo_compiling() and is_current(thread) and started:
                seconds[path] = seconds.get(path, 0.0) + time.perf_counter() - started.pop()

        hooks.append(module.register_forward_pre_hook(enter))
        hooks.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
