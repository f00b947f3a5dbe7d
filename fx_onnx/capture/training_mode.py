"""Sets a module to training or evaluation mode for a capture, and restores its mode afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType

import torch

from fx_onnx.core.export_modes import TrainingMode

__all__ = ["has_mode", "in_mode", "mode_matters"]


def has_mode(model: torch.nn.Module) -> bool:
    """Returns whether ``model.eval()`` can be called; the modules of torch.export replace it by one that raises."""
    return "eval" not in vars(model)


def mode_matters(model: torch.nn.Module) -> bool:
    """Returns whether the training mode of the module, or of a submodule, may change the results.

    The mode of a module counts if a method of its class reads ``training``, or if its code cannot be seen. So a new
    wrapper around a model in evaluation mode is as good as that model, and so is a Conv2d.
    """
    return any(
        module.training and (_has_hidden_code(module) or _reads_mode(type(module))) for module in model.modules()
    )


def _has_hidden_code(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.jit.ScriptModule) or "forward" in vars(module)


def _reads_mode(kind: type) -> bool:
    """Returns whether a method of the class, or of a base class other than Module, names ``training``."""
    members = [value for base in kind.__mro__ if base not in (torch.nn.Module, object) for value in vars(base).values()]
    codes = [value.__code__ for value in members if isinstance(value, FunctionType)]
    for code in codes:  # the list grows by lambdas and such
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    # as an attribute, or as the name for getattr
    return any("training" in code.co_names or "training" in code.co_consts for code in codes)


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
