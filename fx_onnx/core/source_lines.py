"""The lines of code that messages name: lines of the user's code or of a library, never of torch or of this package."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

__all__ = ["function_place", "innermost_line", "is_internal", "is_library", "line_text", "shown_path"]

_STDLIB = Path(os.__file__).parent
_PACKAGE = Path(__file__).parents[1]
_INTERNAL = (Path(torch.__file__).parent, _PACKAGE, _PACKAGE.parent / "decompositions")


@lru_cache(maxsize=4096)
def is_internal(filename: str) -> bool:
    """Returns whether a file belongs to torch, to fx_onnx or to Python, or is neither a file nor a notebook's cell."""
    path = Path(filename)
    in_stdlib = path.is_relative_to(_STDLIB) and "site-packages" not in path.parts
    return (
        in_stdlib
        or any(path.is_relative_to(folder) for folder in _INTERNAL)
        or not (path.is_file() or _is_cell(filename))
    )


# The code of these packages handles symbolic numbers, or never gets them.
_LIBRARIES = {"torch", "torchgen", "functorch", "fx_onnx", "sympy", "mpmath", "numpy", "onnx", "onnx_ir", "onnxscript"}


def is_library(module: str) -> bool:
    """Returns whether a module, by its name, is a part of Python, torch, fx_onnx or what these need, not of a model."""
    package = module.partition(".")[0]
    return package in _LIBRARIES or package in sys.stdlib_module_names


def _is_cell(filename: str) -> bool:
    """Returns whether a name is that of a notebook's cell. Generated code has such a name as ``<string>``."""
    return filename in linecache.cache and not filename.startswith("<")


def line_text(filename: str, line: int | None, code: str | None = None) -> str:
    """Returns ``(file:line: code)``. The path of a file in an installed package is relative to site-packages."""
    _, packages, path = filename.rpartition(f"site-packages{os.sep}")
    shown = path if packages else filename
    code = linecache.getline(filename, line or 0).strip() if code is None else code.strip()
    return f"({shown}:{line}{': ' if code else ''}{code})"


def innermost_line(frames: Iterable[traceback.FrameSummary]) -> str:
    """Returns the place of the innermost frame that is not internal, as ``line_text``; empty if there is none."""
    for frame in reversed(list(frames)):
        if not is_internal(frame.filename):
            return line_text(frame.filename, frame.lineno, frame.line)
    return ""


def function_place(function: Callable[..., Any]) -> str:
    """Returns the name of a user's function with its file and line, for example ``my_gelu (model.py:12)``."""
    function = inspect.unwrap(getattr(function, "func", function))
    function = getattr(function, "function", function)  # of an onnxscript function
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", repr(function))
    return f"{name} ({shown_path(code.co_filename)}:{code.co_firstlineno})" if code is not None else str(name)


def shown_path(name: str) -> str:
    """Returns a path for a message: from the working directory or from site-packages if the file is below it."""
    import sysconfig  # Python does not load it, and few messages name a path

    path = Path(name)
    for folder in (Path.cwd(), Path(sysconfig.get_path("purelib")), Path(torch.__file__).parents[1]):
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return name
