"""Sets a module to training or evaluation mode for a capture, and restores its mode afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fx_onnx.core.export_modes import TrainingMode

__all__ = ["has_mode", "in_mode"]


def has_mode(model: torch.nn.Module) -> bool:
    """Returns whether ``model.eval()`` can be called; the modules of torch.export replace it by one that raises."""
    return "eval" not in vars(model)


@contextmanager
def in_mode(model: torch.nn.Module, mode: TrainingMode | None) -> Iterator[None]:
    """Sets the module and its submodules to a mode until the context ends; None and PRESERVE change nothing.

    ``model.train()`` is called only if a submodule is in the other mode, because some modules override it with more
    than the flag (an adapter merges its weights) or refuse the call (a GraphModule of torch.export).
    """
    before = {module: module.training for module in model.modules()}
    wanted = mode is TrainingMode.TRAINING
    if mode in (None, TrainingMode.PRESERVE) or all(flag is wanted for flag in before.values()):
        yield
        return
    try:
        model.train(wanted)
        yield
    finally:
        model.train(before[model])
        for module, flag in before.items():
            module.training = flag
