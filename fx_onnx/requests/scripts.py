"""TorchScript in a model: what the capture knows of it, whereas the room of TorchScript interprets it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from fx_onnx.extension_points import rooms

__all__ = ["InterpretedModule", "has_scripts", "interpreted_submodules", "is_script", "numbers_became_buffers"]


class InterpretedModule(torch.nn.Module):
    """A TorchScript module or function as a Python module.

    Attributes:
        changed_numbers: the numbers that the last forward changed and that are not buffers yet.
    """

    changed_numbers: set[str]
    promote_numbers: Callable[[], None]  # turns them into 0-d buffers
    run_script: Callable[..., Any]  # calls the TorchScript module or function itself


def is_script(model: Any) -> bool:
    """Returns whether a model is a scripted or traced module or function."""
    return isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction))


def interpreted_submodules(model: torch.nn.Module) -> AbstractContextManager[None]:
    """Returns the context in which the TorchScript modules in a Python module are replaced by Python modules."""
    if not any(map(is_script, model.modules())):
        return nullcontext()
    context: AbstractContextManager[None] = rooms.find("models", "TorchScript submodules")(model)
    return context


def has_scripts(model: torch.nn.Module) -> bool:
    """Returns whether a module is or contains an interpreted one."""
    return any(isinstance(module, InterpretedModule) for module in model.modules())


def numbers_became_buffers(model: torch.nn.Module) -> bool:
    """Turns the numbers that the last forward changed into 0-d buffers; returns whether there were any."""
    scripts = [module for module in model.modules() if isinstance(module, InterpretedModule) and module.changed_numbers]
    for script in scripts:
        script.promote_numbers()
    return bool(scripts)
