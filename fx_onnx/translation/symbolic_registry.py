"""The symbolic functions that ``register_custom_op_symbolic`` registers: the only global state that a caller changes.

``export`` copies what its opset needs once, when it is called.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.autograd import Function

from fx_onnx.messages.arguments import shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.torch_internals.torch_private import OpOverload, OpOverloadPacket, registered_symbolics

Symbolic = Callable[..., Any]

PYTHON_OP = "prim::PythonOp"
"""TorchScript's name of the call of an autograd.Function."""

_NAME = re.compile(r"([A-Za-z0-9_-]*)::([A-Za-z_-][A-Za-z0-9_-]*)")

_lock = threading.Lock()
_registered: dict[str, dict[int, Symbolic]] = {}  # the name of an operator → opset → function


def register(name: str, function: Symbolic, opset: int) -> None:
    """Registers a symbolic function, or replaces the one that has the same name and opset.

    Raises:
        ArgumentError: an argument is not valid, or torch.export never calls an operator of this name.
    """
    name = _checked_name(name)
    _check_opset(opset)
    if not callable(function):
        raise ArgumentError(f"symbolic_fn must be a function, not {shown(function)}.", id=MessageId.CUSTOM_TRANSLATION)
    with _lock:
        _registered.setdefault(name, {})[opset] = function


def unregister(name: str, opset: int) -> None:
    """Removes a symbolic function; does nothing if there is none of this name and opset.

    Raises:
        ArgumentError: an argument is not valid.
    """
    name = _checked_name(name)
    _check_opset(opset)
    with _lock:
        functions = _registered.get(name, {})
        functions.pop(opset, None)
        if not functions:
            _registered.pop(name, None)


def registered(opset: int) -> Mapping[str, Symbolic]:
    """Returns a copy of the registrations for an export: name → the function of the newest opset up to ``opset``.

    A registration with fx_onnx has precedence over one with torch.onnx, which also takes names that no operator has.
    """
    with _lock:
        by_name = {
            name: functions[max(reached)]
            for name, functions in {**registered_symbolics(), **_registered}.items()
            if (reached := [version for version in functions if version <= opset])
        }
    return MappingProxyType(by_name)


def _checked_name(name: Any) -> str:
    """Returns the full name of an operator; ``::relu`` means ``aten::relu``."""
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise ArgumentError(
            f"symbolic_name must be an operator without its overload, such as 'aten::relu', not {shown(name)}.",
            id=MessageId.CUSTOM_TRANSLATION,
        )
    namespace, operator = match.group(1) or "aten", match.group(2)
    if namespace == "onnx":
        raise ArgumentError(
            f"{name} is an operator of ONNX; register a symbolic function for an operator of torch.",
            id=MessageId.CUSTOM_TRANSLATION,
        )
    if namespace == "prim" and operator != "PythonOp":
        raise ArgumentError(
            f"A program of torch.export has no {name}; the only name of prim:: that is known is {PYTHON_OP}, the call "
            "of an autograd.Function.",
            id=MessageId.CUSTOM_TRANSLATION,
        )
    return f"{namespace}::{operator}"


def _check_opset(opset: Any) -> None:
    if isinstance(opset, bool) or not isinstance(opset, int) or opset < 1:
        raise ArgumentError(
            f"opset_version must be a number from 1 on, not {shown(opset)}.", id=MessageId.CUSTOM_TRANSLATION
        )


# --- the operators of symbolic functions ------------------------------------------------------------------------------


def is_of_library(name: str, function: Callable[..., Any]) -> bool:
    """Returns whether a library has registered a symbolic function for its own operator, for TorchScript's exporter."""
    return str(function.__module__).partition(".")[0] == name.partition("::")[0]


def operator_named(name: str) -> OpOverloadPacket | None:
    """Returns the operator of a name such as ``torchvision::nms``; None if this process has none."""
    namespace, _, operator = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    return packet if isinstance(packet, OpOverloadPacket) else None


def overloads_of(packet: OpOverloadPacket) -> list[OpOverload]:
    """Returns the overloads of an operator that write no result into an argument ``out``; all if each does."""
    overloads = [getattr(packet, overload) for overload in packet.overloads()]
    return [each for each in overloads if not any(formal.is_out for formal in each._schema.arguments)] or overloads


def autograd_functions(cls: type[Function] = Function) -> Iterator[type[Function]]:
    """Yields the subclasses of torch.autograd.Function in this process, whose ``symbolic`` is a symbolic function."""
    for subclass in cls.__subclasses__():
        yield subclass
        yield from autograd_functions(subclass)
