"""Watches the modules that the forward enters while torch.export traces it: their number and their times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import get_ident
from typing import Any

import torch

from fx_onnx.messages.progress import report_progress, shows_progress
from fx_onnx.torch_internals.threads import is_current

__all__ = ["measure_modules", "watch_modules"]

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
def watch_modules(model: torch.nn.Module, strict: bool) -> Iterator[None]:
    """Reports each module that the current thread enters for the first time, and measures it if someone asks for it.

    The hooks compute nothing, and are removed afterwards, so the captured graph is the same with and without them.
    Where dynamo traces, in strict mode and in the branches of torch.cond, nothing is measured. Modules of TorchScript
    have no hooks.
    """
    seconds = _measured.get()
    if seconds is not None:
        seconds.clear()  # a capture may be repeated, and the last one counts
    if strict or (seconds is None and not shows_progress()):
        yield
        return
    modules = {path: each for path, each in model.named_modules() if not isinstance(each, torch.jit.ScriptModule)}
    entered, started = set[str](), list[float]()

    def enter(path: str) -> None:
        if path not in entered:
            entered.add(path)
            report_progress(len(entered), len(modules))
        started.append(time.perf_counter())

    def leave(path: str) -> None:
        if seconds is not None and started:
            seconds[path] = seconds.get(path, 0.0) + time.perf_counter() - started.pop()

    hooks = []
    for path, module in modules.items():
        hooks.append(module.register_forward_pre_hook(_in_this_thread(enter, path)))
        hooks.append(module.register_forward_hook(_in_this_thread(leave, path), always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _in_this_thread(watch: Callable[[str], None], path: str) -> Callable[..., None]:
    thread = get_ident()

    def hook(*_: Any) -> None:
        if not torch.compiler.is_dynamo_compiling() and is_current(thread):
            watch(path)

    return hook
