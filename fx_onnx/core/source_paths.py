"""Stack traces that do not depend on the machine, the checkout or the process, for the metadata of a model."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

__all__ = ["portable_stack_trace"]

# One frame of a stack trace: the line of the place, then the lines of the code up to the next place.
_FRAME = re.compile(r'^( *File ")([^"]*)(".*\n?)((?:(?! *File ").*\n?)*)', re.MULTILINE)

# The code that torch.fx generates. Its number counts the graphs of the process, and nobody can read its lines.
_GENERATED = "<eval_with_key>"


def portable_stack_trace(trace: str) -> str:
    """Returns a stack trace as torch.export records it, with relative paths and without frames in generated code.

    A file of a package is named from the folder of the package: ``torch/nn/modules/linear.py``. Another file is named
    from the working directory if it is below it, or else by its file name alone.
    """
    return _portable(trace, os.getcwd()) if trace else ""


@lru_cache(maxsize=4096)
def _portable(trace: str, folder: str) -> str:
    def frame(match: re.Match[str]) -> str:
        before, path, after, code = match.groups()
        return "" if path.startswith(_GENERATED) else f"{before}{_relative(path, folder)}{after}{code}"

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
