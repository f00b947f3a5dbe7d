"""The user's module as it runs without an export, to compare results with."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram

from fx_onnx.capture.export_flag import PATCHES, exporting
from fx_onnx.capture.patches.fake_quantize import freeze_fake_quantizers
from fx_onnx.capture.patches.patching import apply_patches
from fx_onnx.capture.request import Request
from fx_onnx.capture.torchscript.scripted_module import ScriptedModule
from fx_onnx.capture.training_mode import in_mode
from fx_onnx.core.torch_private import pytree

__all__ = ["EagerModel", "copy_without_weights", "eager_model", "tensor_attributes", "with_floats"]


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
        args, kwargs = with_floats(self.request, (args, kwargs))
        training = in_mode(self.module, self.request.training)
        with training, freeze_fake_quantizers(self.module), exporting(), apply_patches(PATCHES):
            return self.module(*args, **kwargs)

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Returns those of the copy."""
        yield from self.module.named_modules(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """Returns those of the copy."""
        yield from self.module.named_buffers(*args, **kwargs)


def eager_model(request: Request) -> EagerModel | None:
    """Returns the module of a request for eager runs.

    Returns None if the request has no Python module (an ExportedProgram, a TorchScript model), or if its module cannot
    be copied: a run could change it.
    """
    model = request.model
    if isinstance(model, (ExportedProgram, ScriptedModule)):
        return None
    try:
        return EagerModel(request, copy_without_weights(model))
    except (TypeError, ValueError, RuntimeError, AttributeError):  # an attribute of the module cannot be copied
        return None


def copy_without_weights(model: torch.nn.Module) -> torch.nn.Module:
    """Copies a module that shares its parameters with the copy; buffers and Python attributes may change in a call.

    Attributes that are tensors with a gradient function are shared too, because torch does not copy these.
    """
    shared = [*model.parameters(), *(tensor for tensor in tensor_attributes(model) if not tensor.is_leaf)]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})


def tensor_attributes(model: torch.nn.Module) -> list[torch.Tensor]:
    """Returns the tensors that are attributes of the modules, but neither parameters nor buffers."""
    values = (value for module in model.modules() for value in vars(module).values())
    return [value for value in values if isinstance(value, torch.Tensor)]


def with_floats(request: Request, given: tuple[Any, Any]) -> tuple[Any, Any]:
    """Returns the arguments with floats where the user gave floats, which the request holds as 0-d tensors."""
    leaves, tree = pytree.tree_flatten(given)
    for place in request.float_leaves:
        leaves[place] = leaves[place].item()
    arguments: tuple[Any, Any] = pytree.tree_unflatten(leaves, tree)
    return arguments
