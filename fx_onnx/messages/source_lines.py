"""The lines of code that messages name: lines of the user's code or of a library, never of torch or of this package."""

from __future__ import annotations

import inspect
import linecache
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

__all__ = [
    "TracedLine",
    "call_site",
    "function_location",
    "function_place",
    "innermost_line",
    "is_internal",
    "is_library",
    "line_text",
    "portable_stack_trace",
    "shown_path",
    "traced_lines",
    "user_frame",
]

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


def user_frame(frame: Any) -> Any:
    """Returns the innermost frame of the user's or a library's code, from a frame on; the outermost one without any."""
    while frame.f_back is not None and is_internal(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def call_site(frame: Any) -> Any:
    """Returns what identifies a call of a frame among all calls in its code: the code and the columns of the call.

    Python 3.11 moves the call to another instruction when it has run a few times.
    """
    return frame.f_code, _columns(frame.f_code, frame.f_lasti)


@lru_cache(maxsize=4096)
def _columns(code: Any, last: int) -> Any:
    """Returns the lines and columns of an instruction; its index where Python keeps no columns."""
    positions = next(islice(code.co_positions(), last // 2, None))
    return last if None in positions else positions


# The code of these packages handles symbolic numbers, or never gets them.
_LIBRARIES = {"torch", "torchgen", "functorch", "fx_onnx", "sympy", "mpmath", "numpy", "onnx", "onnx_ir", "onnxscript"}


def is_library(module: str) -> bool:
    """Returns whether a module, by its name, is a part of Python, torch, fx_onnx or what these need, not of a model."""
    package = module.partition(".")[0]
    return package in _LIBRARIES or package in sys.stdlib_module_names


def _is_cell(filename: str) -> bool:
    """Returns whether a name is that of a notebook's cell. Generated code has such a name as ``<string>``."""
    return filename in linecache.cache and not filename.startswith("<")


def _cell(filename: str) -> str:
    """Returns ``Cell In[3]`` for the file that IPython makes of a notebook's cell; the name itself for another file."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named = getattr(getattr(shell, "compile", None), "format_code_name", lambda name: None)(filename)
    return " ".join(named) if named else filename


def line_text(filename: str, line: int | None, code: str | None = None) -> str:
    """Returns ``(file:line: code)``. The path of a file in an installed package is relative to site-packages."""
    _, packages, path = filename.rpartition(f"site-packages{os.sep}")
    shown = path if packages else _cell(filename)
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
    name, location = function_location(function)
    return f"{name} ({location})" if location else name


def function_location(function: Callable[..., Any]) -> tuple[str, str]:
    """Returns the name of a function and its ``file:line``, which is empty if the function is not written in Python."""
    function = inspect.unwrap(getattr(function, "func", function))
    function = getattr(function, "function", function)  # of an onnxscript function
    code = getattr(function, "__code__", None)
    name = str(getattr(function, "__name__", repr(function)))
    return name, f"{shown_path(code.co_filename)}:{code.co_firstlineno}" if code is not None else ""


def shown_path(name: str) -> str:
    """Returns a path for a message: from site-packages or from the working directory if the file is below it."""
    import sysconfig  # Python does not load it, and few messages name a path

    path = Path(name)
    for folder in (Path(sysconfig.get_path("purelib")), Path(torch.__file__).parents[1], Path.cwd()):
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return _cell(name)


# ---------------------------------------------------------------- stack traces

# The metadata of a model does not depend on the machine, the checkout or the process.

# One frame: the line of the place, in three parts, then the lines of the code up to the next place.
_FRAME = re.compile(r'^( *File ")([^"]*)(", line (\d+), in (.*)\n?|".*\n?)((?:(?! *File ").*\n?)*)', re.MULTILINE)

# The code that torch.fx generates. Its number counts the graphs of the process, and nobody can read its lines.
_GENERATED = "<eval_with_key>"


class TracedLine(NamedTuple):
    """One frame of a stack trace: the file, the line, the function and the text of the line."""

    path: str
    line: str
    function: str
    code: str

    @property
    def place(self) -> str:
        """``file:line``."""
        return f"{self.path}:{self.line}"


@lru_cache(maxsize=4096)
def traced_lines(trace: str) -> tuple[TracedLine, ...]:
    """Returns the frames of a stack trace as torch.export records it, the innermost last."""
    frames = (match.group(2, 4, 5, 6) for match in _FRAME.finditer(trace))
    return tuple(TracedLine(path, line, name, " ".join(code.split())) for path, line, name, code in frames if line)


def portable_stack_trace(trace: str) -> str:
    """Returns a stack trace as torch.export records it, with relative paths and without frames in generated code.

    A file of a package is named from the folder of the package: ``torch/nn/modules/linear.py``. Another file is named
    from the working directory if it is below it, or else by its file name alone.
    """
    return _portable(trace, os.getcwd()) if trace else ""


@lru_cache(maxsize=4096)
def _portable(trace: str, folder: str) -> str:
    def frame(match: re.Match[str]) -> str:
        before, path, after, code = match.group(1, 2, 3, 6)
        return "" if path.startswith(_GENERATED) else f"{before}{_relative(_cell(path), folder)}{after}{code}"

    return _FRAME.sub(frame, trace)


@lru_cache(maxsize=4096)
def _relative(name: str, folder: str) -> str:
    """Returns the path that the portable trace shows for a source file; a name such as `<string>` stays as it is."""
    path = Path(folder, name)
    if name.startswith("<") or not path.is_absolute():
        return name
    root = path.parent
    while (root / "__init__.py").is_file() and root != root.parent:
        root = root.parent
    if root == path.parent:
        root = Path(folder) if path.is_relative_to(folder) else root
    return path.relative_to(root).as_posix()
