"""Gives each guard that torch records its origin: the user's line, and what torch does where the guard is false.

torch names the innermost frame, which is often a line of torch itself, such as the rule for broadcasting.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch

from fx_onnx.capture.patches.patching import Around, Patch
from fx_onnx.messages.source_lines import is_internal
from fx_onnx.torch_internals.guard_private import (
    GuardOrigin,
    deferring_float_checks,
    mark_origin,
    traced_frames,
)
from fx_onnx.torch_internals.torch_differences import older_than

__all__ = ["PATCHES"]

_EXPORT = inspect.unwrap(torch.export.export).__code__  # calls the model
_RAISING = "expect_true"  # torch's method for a condition that it checks, such as equal sizes
_CONVERTING = ("guard_int", "guard_float")  # torch's methods that make a Python number of a symbolic one
_CALLING = "__torch_function__"  # a mode of torch.export is active, so that each call of torch has this frame


def _with_origin(record: Callable[..., Any]) -> Callable[..., Any]:
    """Returns what replaces the method that locates a guard: it marks the location; see ``guard_origin``."""

    def with_origin(*args: Any, **kwargs: Any) -> Any:
        location = record(*args, **kwargs)
        mark_origin(location, _origin())
        return location

    return with_origin


PATCHES = (
    Patch(
        "torch.fx.experimental.symbolic_shapes:ShapeEnv._get_sloc",
        Around(_with_origin),
        "A message about a guard that torch's own code adds would name no line.",
    ),
    Patch(
        "torch.fx.experimental.symbolic_shapes:ShapeEnv.guard_or_defer_runtime_assert",
        Around(deferring_float_checks),
        "torch would take what it knows of a float for a guard, which it cannot print.",
        versions=older_than("checks of floats are guards"),
    ),
)


def _origin() -> GuardOrigin:
    """Returns the origin of a guard, from the frames inside of the call of torch.export."""
    raises = converts = truncates = False
    call, user = None, None
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code is not _EXPORT and user is None:
        name, filename = frame.f_code.co_name, frame.f_code.co_filename
        if not is_internal(filename):
            user = traceback.FrameSummary(filename, frame.f_lineno, frame.f_code.co_name, lookup_line=False)
        raises |= name == _RAISING
        converts |= name in _CONVERTING
        truncates |= name == "__int__"
        if name == _CALLING and "func" in frame.f_locals:
            call = tuple(frame.f_locals.get(variable) for variable in ("func", "args", "kwargs"))
        frame = frame.f_back
    traced = (summary for summary in reversed(traced_frames()) if not is_internal(summary.filename))  # in strict mode
    return GuardOrigin(user or next(traced, None), raises, converts, truncates, call)
