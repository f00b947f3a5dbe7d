"""Emits nodes that call torch's operators, for the modes of ``operator_export_type`` other than ONNX.

A tensor argument is an input of the node, and a list of tensors is several inputs. All other arguments of the schema
are attributes, and None is an absent input or attribute. The attribute of a list of tensors is its length. A number
that is known only at run time is an input; the inputs have the order of the schema.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from fx_onnx.custom_translations.autograd_functions import NAMESPACE
from fx_onnx.custom_translations.kept_functions import operator_of_call
from fx_onnx.extension_points.translation_table import Fallback
from fx_onnx.onnx_model import metadata
from fx_onnx.requests.export_modes import OperatorExportTypes
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.torch_internals.torch_private import OpOverload
from fx_onnx.translation.emitter import Emitter, as_tuple

__all__ = ["ATEN_DOMAIN", "fallback"]

ATEN_DOMAIN = "org.pytorch.aten"
"""The domain of the ``ATen`` nodes of TorchScript's exporter."""

# c10's numbers (c10/core/ScalarType.h, MemoryFormat.h, Layout.h), which torch's operators take for these objects.
_NUMBERS: dict[Any, int] = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6,
    torch.float64: 7, torch.complex64: 9, torch.complex128: 10, torch.bool: 11, torch.bfloat16: 15,
    torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2, torch.channels_last_3d: 3,
    torch.strided: 0,
}  # fmt: skip
_LISTS: dict[type, Callable[..., ir.Attr]] = {int: ir.AttrInt64s, float: ir.AttrFloat32s, str: ir.AttrStrings}


def fallback(mode: OperatorExportTypes) -> Fallback:
    """Returns this mode's translations of calls that have no other; in ONNX_ATEN, also of calls that have one."""

    def find(target: Any) -> Callable[..., Any] | None:
        if not isinstance(target, OpOverload) or not _returns_tensors(target):
            return None
        if target.namespace == NAMESPACE and mode != OperatorExportTypes.ONNX_ATEN:
            function = operator_of_call(target).callable
            return _node_of(target, function.__module__, function.__name__)
        if target.namespace == "aten" and mode != OperatorExportTypes.ONNX_FALLTHROUGH:
            return _node_of(target, ATEN_DOMAIN, "ATen", operator=_name(target), overload_name=_overload(target))
        if mode == OperatorExportTypes.ONNX_FALLTHROUGH:
            overload = {"overload_name": name} if (name := _overload(target)) else {}
            return _node_of(target, target.namespace, _name(target), **overload)
        return None

    return Fallback(find, is_first=mode == OperatorExportTypes.ONNX_ATEN)


def _returns_tensors(target: OpOverload) -> bool:
    types = [str(result.type) for result in target._schema.returns]
    return bool(types) and all(kind in ("Tensor", "List[Tensor]") for kind in types)


def _name(target: OpOverload) -> str:
    return target._schema.name.partition("::")[2]


def _overload(target: OpOverload) -> str:
    return target._schema.overload_name


def _node_of(target: OpOverload, domain: str, op_type: str, **fixed: str) -> Callable[..., Any]:
    """Returns a translation that emits one node of the domain."""

    def translation(op: Emitter, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip((parameter.name for parameter in target._schema.arguments), args, strict=False)) | kwargs
        inputs: list[Any] = []
        attributes: dict[str, Any] = dict(fixed)
        for argument in target._schema.arguments:
            value = given.get(argument.name, argument.default_value)
            is_tensor = "Tensor" in str(argument.type)
            if is_tensor and isinstance(value, (list, tuple)):
                inputs += value
                attributes[argument.name] = len(value)
            elif is_tensor or isinstance(value, ir.Value) or _has_symbolic_number(value):
                inputs.append(value)  # the emitter makes a value of symbolic numbers
            elif value is not None:
                attributes[argument.name] = _attribute(argument.name, value, str(argument.type))
        results = as_tuple(op.call_op(op_type, inputs, attributes, domain=domain, outputs=max(1, len(op.out))))
        node = results[0].producer()
        if node is not None:
            node.meta[metadata.FALLBACK] = target._schema.name
        return results[0] if len(results) == 1 else results

    translation.__name__ = f"{domain}::{op_type}"
    return translation


def _has_symbolic_number(value: Any) -> bool:
    """Returns whether a value is a symbolic number, or a list that contains one."""
    items = value if isinstance(value, (list, tuple)) else [value]
    return any(isinstance(symbolic_sizes.static(item), symbolic_sizes.SymbolicNumber) for item in items)


def _attribute(name: str, value: Any, kind: str) -> Any:
    """Returns an argument as an attribute; an empty list needs the type that the schema gives it."""
    if isinstance(value, (list, tuple)):
        plain = [_plain(item) for item in value]
        types = {type(item) for item in plain} or {float if "float" in kind else int}
        return _LISTS[float if types == {int, float} else types.pop()](name, plain)
    return _plain(value)


def _plain(value: Any) -> Any:
    value = symbolic_sizes.static(value)
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (int, float, str)):
        return value
    if value in _NUMBERS:
        return _NUMBERS[value]
    raise NotImplementedError(f"the argument {value!r} cannot be an attribute of a node")
