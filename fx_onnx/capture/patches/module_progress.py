"""Reports the progress of a capture: how many modules the forward has entered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch

from fx_onnx.core.progress import report_progress, shows_progress
from fx_onnx.core.threads import is_current

__all__ = ["report_entered_modules"]


@contextmanager
def report_entered_modules(model: torch.nn.Module) -> Iterator[None]:
    """Reports each module that the current thread enters for the first time within the context.

    The hooks are removed afterwards. They compute nothing, so the captured graph is the same with and without them.
    Modules of TorchScript have no hooks.
    """
    if not shows_progress():
        yield
        return
    modules = [each for each in model.modules() if not isinstance(each, torch.jit.ScriptModule)]
    entered: set[int] = set()
    thread, total = get_ident(), len(modules)

    def enter(module: torch.nn.Module, *_: Any) -> None:
        if id(module) not in entered and is_current(thread):
            entered.add(id(module))
            report_progress(len(entered), total)

    hooks = [module.register_forward_pre_hook(enter) for module in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
