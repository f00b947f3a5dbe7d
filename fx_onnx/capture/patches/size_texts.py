"""Records where the forward makes text of a dynamic number: ``str(n)``, ``f"{n}"``.

torch's text of a dynamic size is a symbol such as ``s77``. Here it is the text of the example's size. A message may
contain it; where a result depends on it, as through a key of a dict, the capture is repeated with the number itself, so
that the dim becomes static.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from fx_onnx.capture.patches.patching import FILES_BETWEEN, replace_attribute
from fx_onnx.core.guard_private import example_value
from fx_onnx.core.source_lines import is_internal, line_text

__all__ = ["record_size_texts"]

_PLAIN_TYPES: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float}


@contextmanager
def record_size_texts(fixed: bool) -> Iterator[dict[str, None]]:
    """Yields a dict whose keys are the places where the forward makes text of a number, as ``(file:line: code)``.

    Args:
        fixed: Whether the text makes the number static. A number that depends on data then raises torch's error.
    """
    found: dict[str, None] = {}
    with ExitStack() as stack:
        for kind, plain in _PLAIN_TYPES.items():
            torch_text = vars(kind)["__repr__"]
            for name in ("__str__", "__repr__", "__format__"):
                text = _recorder(getattr(kind, name), torch_text, getattr(plain, name), fixed, found)
                stack.enter_context(replace_attribute(kind, name, text))
        yield found


def _recorder(
    original: Callable[..., str],
    torch_text: Callable[[Any], str],
    plain_text: Callable[..., str],
    fixed: bool,
    found: dict[str, None],
) -> Callable[..., str]:
    """Returns a replacement of a method that makes text. torch's own code gets torch's text."""

    def text(number: Any, *spec: str) -> str:
        frame: Any = sys._getframe(1)
        while frame.f_code.co_filename in FILES_BETWEEN:
            frame = frame.f_back
        if is_internal(frame.f_code.co_filename):
            return original(number, *spec)
        found[line_text(frame.f_code.co_filename, frame.f_lineno)] = None
        if fixed:
            return plain_text(_PLAIN_TYPES[type(number)](number), *spec)
        value = example_value(number)
        return torch_text(number) if value is None else plain_text(_PLAIN_TYPES[type(number)](value), *spec)

    return text
