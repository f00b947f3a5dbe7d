"""The user's module as it runs without an export, to compare results with, and the mode in which it runs."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import CodeType, FunctionType
from typing import Any

import torch
from torch.export import ExportedProgram

from fx_onnx.capture.export_flag import PATCHES, exporting
from fx_onnx.capture.patches.patching import apply_patches, exchange_attribute
from fx_onnx.extension_points import rooms
from fx_onnx.requests.export_modes import TrainingMode
from fx_onnx.requests.request import Request
from fx_onnx.requests.scripts import InterpretedModule
from fx_onnx.torch_internals.threads import attribute_of_thread

__all__ = [
    "EagerModel", "copy_without_weights", "eager_model", "frozen_quantizers", "has_mode", "in_mode", "mode_matters",
    "mode_of_this_thread", "tensor_attributes",
]  # fmt: skip


_QUANTIZATION = ("torch.ao.", "torchao.quantization.pt2e.")  # the packages with fake quantizers and observers


class EagerModel(torch.nn.Module):
    """A copy of the user's module that takes the arguments of a Request and shares the parameters.

    It runs in the mode of the request, and ``is_in_onnx_export()`` is true, so that a forward takes the branch that it
    takes in the export. Its modules and buffers are those of the copy.
    """

    request: Request
    module: torch.nn.Module

    def __init__(self, request: Request, module: torch.nn.Module) -> None:
        super().__init__()
        vars(self).update(request=request, module=module)  # nn.Module would make the copy a submodule

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the copy."""
        args, kwargs = self.request.with_floats((args, kwargs))
        training = in_mode(self.module, self.request.training)
        with training, frozen_quantizers(self.module), exporting(), apply_patches(PATCHES):
            return self.module(*args, **kwargs)

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Returns those of the copy."""
        yield from self.module.named_modules(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """Returns those of the copy."""
        yield from self.module.named_buffers(*args, **kwargs)


def frozen_quantizers(model: torch.nn.Module) -> AbstractContextManager[None]:
    """Returns the context in which the fake quantizers of a model compute with their current scales."""
    bases = {base for kind in set(map(type, model.modules())) for base in kind.__mro__}
    has_some = any(f"{base.__module__}.".startswith(_QUANTIZATION) for base in bases)
    return rooms.find("capture", "fake quantizers")(model) if has_some else nullcontext()


def eager_model(request: Request) -> EagerModel | None:
    """Returns the module of a request for eager runs.

    Returns None if the request has no Python module (an ExportedProgram, a TorchScript model), or if its module cannot
    be copied: a run could change it.
    """
    model = request.model
    if isinstance(model, (ExportedProgram, InterpretedModule)):
        return None
    try:
        return EagerModel(request, copy_without_weights(model))
    except (TypeError, ValueError, RuntimeError, AttributeError):  # an attribute of the module cannot be copied
        return None


def copy_without_weights(model: torch.nn.Module) -> torch.nn.Module:
    """Returns a copy of a module that shares its parameters; a call may change its buffers and Python attributes.

    Attributes that are tensors with a gradient function are shared too, because torch does not copy these.
    """
    shared = [*model.parameters(), *(tensor for tensor in tensor_attributes(model) if not tensor.is_leaf)]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})


def tensor_attributes(model: torch.nn.Module) -> list[torch.Tensor]:
    """Returns the tensors that are attributes of the modules, but neither parameters nor buffers."""
    values = (value for module in model.modules() for value in vars(module).values())
    return [value for value in values if isinstance(value, torch.Tensor)]


def has_mode(model: torch.nn.Module) -> bool:
    """Returns whether ``model.eval()`` can be called; the modules of torch.export replace it by one that raises."""
    return "eval" not in vars(model)


def mode_matters(model: torch.nn.Module) -> bool:
    """Returns whether the training mode of the module, or of a submodule, may change the results.

    The mode of a module counts only if a method of its class, or of TorchScript, reads ``training``. So a network of
    convolutions and ReLUs, or a new wrapper around a model in evaluation mode, is the same in both modes. Code that
    cannot be seen may read the mode.
    """
    return any(module.training and _may_read_mode(module) for module in model.modules())


def _may_read_mode(module: torch.nn.Module) -> bool:
    if isinstance(module, torch.jit.ScriptModule):
        return bool(rooms.find("models", "mode of TorchScript")(module))
    return "forward" in vars(module) or _reads_mode(type(module))


def _reads_mode(kind: type) -> bool:
    """Returns whether a method of the class, or of a base class other than Module, names ``training``."""
    members = [value for base in kind.__mro__ if base not in (torch.nn.Module, object) for value in vars(base).values()]
    codes = [value.__code__ for value in map(inspect.unwrap, members) if isinstance(value, FunctionType)]
    for code in codes:  # the list grows by lambdas and such
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    # as an attribute, or as the name for getattr
    return any("training" in code.co_names or "training" in code.co_consts for code in codes)


@contextmanager
def mode_of_this_thread() -> Iterator[None]:
    """Keeps in the current thread what it assigns to ``training`` of modules within the context."""
    own = dict[torch.nn.Module, bool]()

    def get(module: torch.nn.Module) -> Any:
        return own[module] if module in own else vars(module)["training"]

    with exchange_attribute(torch.nn.Module, "training", attribute_of_thread("training", get, own.__setitem__)):
        yield


@contextmanager
def in_mode(
    model: torch.nn.Module, mode: TrainingMode | None, where: AbstractContextManager[None] | None = None
) -> Iterator[None]:
    """Sets the module and its submodules to a mode until the context ends; None and PRESERVE change nothing.

    Other threads have the mode too, except within ``where``, a ``mode_of_this_thread()``.

    ``model.train()`` is called only if a submodule is in the other mode, because some modules override it with more
    than the flag (an adapter merges its weights) or refuse the call (a GraphModule of torch.export).
    """
    before = {module: module.training for module in model.modules()}
    wanted = mode is TrainingMode.TRAINING
    if mode in (None, TrainingMode.PRESERVE) or all(flag is wanted for flag in before.values()):
        yield
        return
    with where or nullcontext():
        try:
            model.train(wanted)
            yield
        finally:
            model.train(before[model])
            for module, flag in before.items():
                module.training = flag
