"""Conditions on data in Python code, such as ``if (x < 0).any():``, which torch.export cannot decide.

A condition may only decide whether the forward raises an exception, as in ``if (x < 0).any(): raise ValueError`` or
``assert (x >= 0).all()``. An ONNX model cannot raise one, so such a check can be left out: the tensors and numbers of
the condition then answer as they do where nothing is raised. A wrong answer raises the exception, so it changes no
result. An exception that the model itself may catch decides about results, and is not left out.

torch raises an error for every other condition, and where it needs a number or a size that depends on data. If the
model catches that error, the captured program has the results of the handler for all data, so the capture counts as
failed.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fx_onnx.capture.check_sources import answer_of, is_caught
from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.core import threads
from fx_onnx.core.source_lines import innermost_line, is_internal
from fx_onnx.core.torch_private import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
    free_unbacked_symbols,
)

__all__ = ["ConditionsOnData", "is_condition", "is_traced", "stops_at_check", "watch_conditions"]

_CONVERSIONS = ("__bool__", "__int__", "__float__", "__index__")
_OUTSIDE = str(Path(__file__).parents[1] / "capture.py")  # calls torch.export, which calls the model
_FILES_BETWEEN = frozenset({__file__, str(Path(__file__).with_name("patching.py")), str(threads.__file__)})


@dataclass
class ConditionsOnData:
    """What happened to the conditions on data during a capture.

    Attributes:
        left_out: the places of the checks that were left out, as ``(file:line: code)``, in order.
        errors: the errors that torch made for other conditions.
    """

    left_out: dict[str, None] = field(default_factory=dict)
    errors: list[Exception] = field(default_factory=list)

    def raise_handled(self) -> None:
        """Raises the first error that the model caught, if there is one; torch's own code may catch others."""
        for error in self.errors:
            if _is_caught_by_model(error):
                raise error


def stops_at_check(error: Exception) -> bool:
    """Returns whether torch could not decide a condition that only leads to an exception."""
    if not _is_undecided(error):
        return False
    frames = []
    step = error.__traceback__
    while step is not None:
        frames.append((step.tb_frame.f_code, step.tb_lasti))
        step = step.tb_next
    return any(answer_of(*frame) is not None for frame in frames)


def is_condition(error: Exception) -> bool:
    """Returns whether the code converts a tensor to a bool or a number of Python, or the model caught the error."""
    return any(frame.filename == __file__ for frame in traceback.extract_tb(error.__traceback__))


@contextmanager
def watch_conditions(leave_out_checks: bool) -> Iterator[ConditionsOnData]:
    """Yields what happens to the conditions on data within the context; leaves out checks if requested."""
    found = ConditionsOnData()
    with ExitStack() as stack:
        for name in _CONVERSIONS:
            stack.enter_context(replace_attribute(torch.Tensor, name, _watched(getattr(torch.Tensor, name))))
        for error in (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException):
            stack.enter_context(replace_attribute(error, "__init__", _recorded(vars(error)["__init__"], found)))
        if leave_out_checks:
            for kind, is_open in ((torch.Tensor, is_traced), (torch.SymBool, _depends_on_data)):
                answering = _answering(kind.__bool__, is_open, found)
                stack.enter_context(replace_attribute(kind, "__bool__", answering))
        yield found


def _watched(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a replacement of a conversion whose frame shows in the errors of torch; see ``is_condition``."""

    def convert(self: Any) -> Any:
        return original(self)

    return convert


def _recorded(original: Callable[..., None], found: ConditionsOnData) -> Callable[..., None]:
    """Returns a replacement of the constructor of an error that records the error."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        found.errors.append(self)

    return __init__


def _is_caught_by_model(error: Exception) -> bool:
    """Returns whether code of the model caught an error; a traceback begins in the frame that caught it."""
    step = error.__traceback__
    return step is not None and not is_internal(step.tb_frame.f_code.co_filename)


def _answering(original: Callable[[Any], bool], is_open: Callable[[Any], bool], found: ConditionsOnData) -> Any:
    """Returns a replacement of ``__bool__`` that answers in a check as it does where nothing is raised."""

    def __bool__(self: Any) -> bool:
        frame: Any = sys._getframe(1)
        while frame.f_code.co_filename in _FILES_BETWEEN:
            frame = frame.f_back
        answer = answer_of(frame.f_code, frame.f_lasti) if is_open(self) else None
        if answer is None or _may_be_caught(frame):
            return original(self)
        found.left_out[innermost_line(traceback.extract_stack(frame))] = None
        return answer

    return __bool__


def _is_undecided(error: Exception) -> bool:
    return "data-dependent" in str(error).lower() or type(error).__name__ == "DataDependentOutputException"


def is_traced(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor is traced and has no values, unlike a plain tensor."""
    return type(tensor) not in (torch.Tensor, torch.nn.Parameter)


def _depends_on_data(condition: torch.SymBool) -> bool:
    return bool(free_unbacked_symbols(condition))


def _may_be_caught(frame: Any) -> bool:
    """Returns whether code of the model may catch an exception that the frame raises."""
    while frame is not None and frame.f_code.co_filename != _OUTSIDE:
        if not is_internal(frame.f_code.co_filename) and is_caught(frame.f_code, frame.f_lineno):
            return True
        frame = frame.f_back
    return False
