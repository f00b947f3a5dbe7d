"""Watches the calls of modules in the current thread: what they change, their number and their times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.messages.progress import report_progress, shows_progress
from fx_onnx.torch_internals.threads import CAPTURE_LOCK

__all__ = ["measure_modules", "watch_calls", "watch_modules", "watched"]

Watch = Callable[[Callable[[], Any]], Any]

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


_watches: list[Mapping[int, Watch]] = []  # by the id of a module's attributes; only one thread watches at a time


@contextmanager
def watch_calls(watches: Mapping[torch.nn.Module, Watch]) -> Iterator[None]:
    """Lets ``watches[module](call)`` run each call of a module in the current thread; ``call()`` returns its result.

    The hooks of a module run within its call. A hook of fx_onnx would run in all threads, and other threads would see
    it in the module. torch.export does not call a GraphModule, but interprets it, which counts as a call. Where two
    names have one module, it calls proxies, which have the attributes of their modules. Where dynamo traces, in strict
    mode and in the branches of torch.cond, nothing is watched.
    """
    call, run = torch.nn.Module.__call__, torch.fx.Interpreter.run
    by_attributes = {id(vars(module)): watch for module, watch in watches.items()}
    has_graphs = any(isinstance(module, torch.fx.GraphModule) for module in watches)
    interpreting = replace_attribute(torch.fx.Interpreter, "run", _interpreting(run, by_attributes))
    with CAPTURE_LOCK, interpreting if has_graphs else nullcontext():
        is_first = not _watches
        _watches.append(by_attributes)
        try:
            with replace_attribute(torch.nn.Module, "__call__", watched(call)) if is_first else nullcontext():
                yield
        finally:
            _watches.pop()


def watched(call: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function to replace ``nn.Module.__call__``, which calls ``call`` and what watches the module."""

    def watched_call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return call(module, *args, **kwargs)
        run = partial(call, module, *args, **kwargs)
        for watches in _watches:
            if id(vars(module)) in watches:
                run = partial(watches[id(vars(module))], run)
        return run()

    return watched_call


def _interpreting(run: Callable[..., Any], watches: Mapping[int, Watch]) -> Callable[..., Any]:
    """Returns a function to replace ``Interpreter.run``, which calls ``run`` and what watches the GraphModule."""

    def watched_run(interpreter: torch.fx.Interpreter, *args: Any, **kwargs: Any) -> Any:
        call, watch = partial(run, interpreter, *args, **kwargs), watches.get(id(vars(interpreter.module)))
        return call() if watch is None else watch(call)

    return watched_run


@contextmanager
def watch_modules(model: torch.nn.Module, strict: bool) -> Iterator[None]:
    """Reports each module that the current thread enters for the first time, and measures it if someone asks for it.

    The captured graph is the same with and without. Modules of TorchScript are not watched.
    """
    seconds = _measured.get()
    if seconds is not None:
        seconds.clear()  # a capture may be repeated, and the last one counts
    if strict or (seconds is None and not shows_progress()):
        yield
        return
    modules = {path: module for path, module in model.named_modules() if not isinstance(module, torch.jit.ScriptModule)}
    entered = set[str]()

    def measured(path: str, call: Callable[[], Any]) -> Any:
        if path not in entered:
            entered.add(path)
            report_progress(len(entered), len(modules))
        started = time.perf_counter()
        try:
            return call()
        finally:
            if seconds is not None:
                seconds[path] = seconds.get(path, 0.0) + time.perf_counter() - started

    with watch_calls({module: partial(measured, path) for path, module in modules.items()}):
        yield
