"""Keeps the warnings of torch's own files out of the user's output while torch captures.

They are about torch's internals, such as a deprecated function that torch itself calls. Warnings at lines of the user's
code or of a library are shown. The exporter itself warns about assigned attributes if results depend on them.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fx_onnx.capture.patches.patching import replace_attribute

__all__ = ["redirect_torch_warnings"]

_logger = logging.getLogger("fx_onnx.torch")
_ASSIGNED_ATTRIBUTE = re.compile(r"The tensor attributes? .* (was|were) assigned during export")
_TORCH_FOLDER = str(Path(torch.__file__).parent) + os.sep


@contextmanager
def redirect_torch_warnings() -> Iterator[None]:
    """Logs the warnings of torch's files at level DEBUG within the context, in the current thread."""
    show = warnings.showwarning

    def showwarning(message: Any, category: type[Warning], filename: str, lineno: int, *rest: Any) -> None:
        if filename.startswith(_TORCH_FOLDER) or _ASSIGNED_ATTRIBUTE.match(str(message)):
            _logger.debug("%s:%d: %s: %s", filename, lineno, category.__name__, message)
        else:
            show(message, category, filename, lineno, *rest)

    with replace_attribute(warnings, "showwarning", showwarning):
        yield
