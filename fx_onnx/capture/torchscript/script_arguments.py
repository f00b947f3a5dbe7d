"""The arguments, the results and the attributes of a TorchScript program, as Python passes and returns them."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from fx_onnx.capture.torchscript.grown_list import has_appended
from fx_onnx.capture.torchscript.script_values import DTYPES, LAYOUTS, MEMORY_FORMATS, Instance, ScalarTensor
from fx_onnx.core.errors import CaptureError
from fx_onnx.core.messages import MessageId
from fx_onnx.core.torch_private import storage_id

__all__ = ["argument_value", "described", "is_unchanged", "parameter", "result_value"]


def parameter(argument: Any) -> inspect.Parameter:
    """Returns an argument of a schema as a parameter of a Python function."""
    kind = inspect.Parameter.KEYWORD_ONLY if argument.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
    default = argument.default_value if argument.has_default_value() else inspect.Parameter.empty
    return inspect.Parameter(argument.name, kind, default=default)


def argument_value(value: Any, kind: Any) -> Any:
    """Returns an argument of the forward as TorchScript passes it."""
    name = kind.kind()
    if name == "OptionalType":
        return None if value is None else argument_value(value, kind.getElementType())
    if name == "FloatType" and isinstance(value, int):
        return float(value)
    if name == "IntType" and isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return next(codes.index(value) for codes in (DTYPES, LAYOUTS, MEMORY_FORMATS) if value in codes)
    if name == "DeviceObjType":
        return torch.device(value)
    if name == "ListType":
        return [argument_value(item, kind.getElementType()) for item in value]
    if name == "TupleType" and isinstance(value, (tuple, list)):
        return tuple(argument_value(item, each) for item, each in zip(value, kind.elements(), strict=True))
    return value


def result_value(value: Any, storages: set[int]) -> Any:
    """Returns a result with its ScalarTensors as tensors, and with copies of the tensors in the given storages."""
    if isinstance(value, ScalarTensor):
        return value.as_tensor()
    if isinstance(value, torch.Tensor):
        return value.clone() if storages and storage_id(value) in storages else value
    if has_appended(value):
        raise CaptureError(
            "The model returns a list whose length depends on data, which an ONNX model cannot do; return torch.stack.",
            id=MessageId.TORCHSCRIPT,
        )
    if isinstance(value, (list, tuple)):
        items = [result_value(item, storages) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return {key: result_value(item, storages) for key, item in value.items()} if isinstance(value, dict) else value


def is_unchanged(before: Any, after: Any) -> bool:
    """Returns whether a value is unchanged."""
    if isinstance(before, (list, tuple)) and isinstance(after, type(before)):
        return len(before) == len(after) and all(is_unchanged(*pair) for pair in zip(before, after, strict=True))
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(is_unchanged(before[key], after[key]) for key in before)
    if isinstance(before, torch.Tensor) or isinstance(after, torch.Tensor):
        return before is after
    if isinstance(before, Instance) and isinstance(after, Instance):
        return all(is_unchanged(before.get(name), value) for name, value in after.attributes.items())
    return type(before) is type(after) and bool(before == after)


def described(value: Any) -> str:
    """Returns a value of an attribute as text for a message."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')} with shape {tuple(value.shape)}"
    if isinstance(value, Instance):
        return f"an object with {', '.join(f'{name} = {described(each)}' for name, each in value.attributes.items())}"
    return f"{type(value).__name__} of length {len(value)}" if isinstance(value, (list, dict, tuple)) else repr(value)
