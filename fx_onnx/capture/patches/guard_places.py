"""Gives each guard that torch records the line of the user's or a library's code that made torch record it.

torch names the innermost frame, which is often a line of torch itself, such as the rule for broadcasting.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.core.guard_private import (
    guard_recorder,
    mark_guard_place,
    replace_interpreter_location,
    traced_frames,
)
from fx_onnx.core.source_lines import is_internal

__all__ = ["record_guard_places"]


@contextmanager
def record_guard_places() -> Iterator[None]:
    """Adds the user's frame to the place of each guard that torch records within the context.

    The context is the boundary: frames of the code that calls it are not candidates.
    """
    found = guard_recorder()
    if found is None:
        yield
        return
    record = getattr(*found)
    outermost = sys._getframe(2)  # frames of this function and of contextlib end before the call of the context's body

    def with_user_frame(self: Any, *args: Any, **kwargs: Any) -> Any:
        place = record(self, *args, **kwargs)
        traced = traced_frames()
        if (frame := _user_frame(outermost) or _innermost_of_user(traced)) is not None:
            mark_guard_place(place, frame)
        if traced:
            replace_interpreter_location(place, traced[-1])
        return place

    with replace_attribute(*found, with_user_frame):
        yield


def _user_frame(outermost: Any) -> traceback.FrameSummary | None:
    """Returns the innermost frame that is not internal, and is inside of ``outermost``."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame is not outermost:
        code = frame.f_code
        if not is_internal(code.co_filename):
            return traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name, lookup_line=False)
        frame = frame.f_back
    return None


def _innermost_of_user(traced: Sequence[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """Returns the innermost frame of strict mode that is not internal."""
    return next((frame for frame in reversed(traced) if not is_internal(frame.filename)), None)
