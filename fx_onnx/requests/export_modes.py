"""The two enumerations of torch.onnx.export: the mode of the module, and how calls without a translation are exported.

torch.onnx has deprecated its enumerations. Their members are accepted too.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypeVar

from fx_onnx.messages.arguments import shown
from fx_onnx.messages.errors import ArgumentError

__all__ = ["OperatorExportTypes", "TrainingMode", "check_mode"]


class TrainingMode(IntEnum):
    """The mode in which a module is captured. The numbers are those of ``torch.onnx.TrainingMode``."""

    EVAL = 0
    """As after ``model.eval()``."""
    PRESERVE = 1
    """Each submodule in the mode that it has. In training mode, layers keep their training forms, as with TRAINING."""
    TRAINING = 2
    """As after ``model.train()``. BatchNormalization and Dropout keep their training forms."""


class OperatorExportTypes(IntEnum):
    """How a call is exported. The numbers are those of ``torch.onnx.OperatorExportTypes``."""

    ONNX = 0
    """ONNX operators. A call that has neither a translation nor a decomposition is an error."""
    ONNX_ATEN = 1
    """Each call of an ATen operator becomes a node ``org.pytorch.aten::ATen``."""
    ONNX_ATEN_FALLBACK = 2
    """ONNX operators, and a node ``org.pytorch.aten::ATen`` for a call of ATen that cannot become ONNX operators."""
    ONNX_FALLTHROUGH = 3
    """ONNX operators, and a node in the operator's own domain for a call that cannot become ONNX operators."""


_Mode = TypeVar("_Mode", TrainingMode, OperatorExportTypes)


def check_mode(parameter: str, value: Any, modes: type[_Mode]) -> _Mode | None:
    """Returns the member that a value means: a member, the member of torch.onnx with its name, or its number.

    None stays None. A bool is the value of ``training`` before torch 1.6.

    Raises:
        ArgumentError: it means no member.
    """
    if value is None:
        return None
    if isinstance(value, bool) and modes is TrainingMode:
        return modes["TRAINING" if value else "EVAL"]
    name = getattr(value, "name", None)
    if isinstance(name, str) and name in modes.__members__ and _number(value) == modes[name]:
        return modes[name]
    if type(value) is int and value in list(modes):
        return modes(value)
    choices = ", ".join(f"{modes.__name__}.{name}" for name in modes.__members__)
    raise ArgumentError(f"{parameter} must be one of {choices}, not {shown(value)}.")


def _number(value: Any) -> int | None:
    """Returns the number of a member of an enumeration; None for another object that has a name."""
    try:
        return int(value)
    except (TypeError, ValueError, RuntimeError):
        return None
