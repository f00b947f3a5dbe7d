"""Records the comparisons of sizes that the forward makes while torch captures it.

torch assumes that a symbolic size is neither 0 nor 1. It answers `x.shape[0] == 1` by this assumption and records no
guard, so the captured program does not show that the model may compute something else for such a size.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fx_onnx.capture.patches.patching import FILES_BETWEEN, replace_attribute
from fx_onnx.core.guard_private import INTERPRETER_FOLDER
from fx_onnx.core.script_private import script_line
from fx_onnx.core.source_lines import is_internal, line_text
from fx_onnx.core.torch_private import skipped_files_function, symbolic_expression

__all__ = ["SizeComparison", "record_size_comparisons"]

_COMPARISONS = {f"__{each.__name__}__": each for each in (
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge
)}  # fmt: skip
_TORCH_FOLDER = str(Path(torch.__file__).parent)


@dataclass(frozen=True)
class SizeComparison:
    """A comparison of two sizes.

    Attributes:
        compare: The function of ``operator`` that compares.
        left: A sympy expression over torch's symbols.
        right: A sympy expression, or a number.
        place: The place of the code that compares, as ``(file:line: code)``; empty if it is unknown.
    """

    compare: Callable[[Any, Any], Any]
    left: Any
    right: Any
    place: str

    @property
    def symbols(self) -> set[Any]:
        """torch's symbols in the two expressions."""
        return {symbol for side in (self.left, self.right) for symbol in getattr(side, "free_symbols", ())}

    def outcome(self, sizes: Mapping[Any, Any]) -> bool | None:
        """Returns the result for these sizes; None if it depends on other values or is undefined."""
        try:
            sides = (self.left, self.right)
            return bool(self.compare(*(each.xreplace(sizes) if hasattr(each, "xreplace") else each for each in sides)))
        except (TypeError, ZeroDivisionError):
            return None


@contextmanager
def record_size_comparisons() -> Iterator[dict[SizeComparison, None]]:
    """Yields a dict whose keys are the comparisons that the forward makes in the context, in order.

    Comparisons in torch's own code are not recorded. Strict mode traces bytecode, so it records none at all.
    """
    found: dict[SizeComparison, None] = {}
    with ExitStack() as stack:
        for name, compare in _COMPARISONS.items():
            stack.enter_context(replace_attribute(torch.SymInt, name, _recorder(name, compare, found)))
        stack.enter_context(_skip_frames())
        yield found


def _recorder(name: str, compare: Callable[..., Any], found: dict[SizeComparison, None]) -> Callable[..., Any]:
    """Returns a replacement of a method of SymInt that compares."""
    original = getattr(torch.SymInt, name)

    def record(size: torch.SymInt, other: Any) -> Any:
        frame: Any = sys._getframe(1)
        # The dispatcher of the patch calls this function, and SymInt.__bool__ compares the size with 0 in torch's code.
        while frame.f_code.co_filename in FILES_BETWEEN or frame.f_code.co_name == "__bool__":
            frame = frame.f_back
        code = frame.f_code
        if not code.co_filename.startswith(_TORCH_FOLDER) and not _is_guard_of_dynamo(frame):
            place = _place(code.co_filename, frame.f_lineno)
            right = symbolic_expression(other) if isinstance(other, (torch.SymInt, torch.SymFloat)) else other
            if isinstance(right, (int, float)) or hasattr(right, "xreplace"):
                found[SizeComparison(compare, symbolic_expression(size), right, place)] = None
        return original(size, other)

    return record


def _place(filename: str, line: int) -> str:
    """Returns the place of the code that compares; empty for code that is in no file, or in this package."""
    if not is_internal(filename):
        return line_text(filename, line)
    script = script_line()
    return "" if script is None else line_text(*script)


def _is_guard_of_dynamo(frame: Any) -> bool:
    """Returns whether a frame is the code that dynamo generates to check its guards, and calls itself."""
    is_generated: bool = frame.f_code.co_filename.startswith("<")
    return is_generated and str(frame.f_back.f_code.co_filename).startswith(INTERPRETER_FOLDER)


@contextmanager
def _skip_frames() -> Iterator[None]:
    """Makes torch attribute guards to the frames that call the replacements, not to the replacements."""
    function = skipped_files_function()
    if function is None:
        yield
        return
    files = getattr(*function)() | FILES_BETWEEN
    with replace_attribute(*function, lambda: files):
        yield
