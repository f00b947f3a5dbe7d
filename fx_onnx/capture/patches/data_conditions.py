"""Conditions on data in Python code, such as ``if (x < 0).any():``, which torch.export cannot decide.

torch raises an error for such a condition, and where it needs a number or a size that depends on data. On a path
(``on_path``), the path answers conditions; the room ``data_branches`` captures one program for each path. If the model
catches an error of torch, the captured program has the results of the handler for all data, so the capture counts as
failed. The errors are kept where torch raises them: in a function of torch, or for a condition on a symbolic number.

A condition on sizes that depend on data may be certain for all sizes of the inputs but 0 and 1, which torch excludes
unless they are sizes like any other. It is answered here, and the sizes for which it is certain become a guard.
"""

from __future__ import annotations

import sys
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode

from fx_onnx.capture.patches.patching import Around, Patch, apply_patches
from fx_onnx.capture.patches.tensor_numbers import remember_number
from fx_onnx.messages.errors import OnnxExporterError
from fx_onnx.messages.source_lines import is_internal
from fx_onnx.onnx_model.metadata import call_line
from fx_onnx.torch_internals import threads
from fx_onnx.torch_internals.guard_private import answered_by_sizes
from fx_onnx.torch_internals.operators import aten, nodes_of
from fx_onnx.torch_internals.torch_private import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
)

__all__ = [
    "UNDECIDED", "DataPath", "OffPathError", "Redirected", "calling_frame", "current_path", "is_condition", "is_number",
    "is_traced", "left_out_checks", "on_path", "raise_handled", "watch_conditions",
]  # fmt: skip

UNDECIDED = (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)
"""What torch raises where a condition, a number or a size depends on data."""
_CONVERSIONS = frozenset({"__bool__", "__int__", "__float__", "__index__"})
_DISPATCHING = frozenset({__file__, str(Path(__file__).with_name("patching.py")), str(threads.__file__)})
_PACKAGE = str(Path(__file__).parents[2])
_ASSERTIONS = (aten._assert_async.default, aten._assert_async.msg)


def raise_handled(errors: Iterable[Exception]) -> None:
    """Raises the first error of torch that the model caught, if there is one; torch's own code may catch others."""
    for error in errors:
        caught_in = error.__traceback__  # a traceback begins in the frame that caught the error
        if caught_in is not None and not is_internal(caught_in.tb_frame.f_code.co_filename):
            raise error


class OffPathError(OnnxExporterError):
    """Raised by a captured program that is one path of a model, where data or sizes take another branch."""


class DataPath(ABC):
    """The answers to the conditions on data on one path through the forward."""

    @abstractmethod
    def watched(self, model: torch.nn.Module, errors: list[Exception]) -> AbstractContextManager[None]:
        """Returns the context of a trace in which the path answers what torch cannot decide.

        Args:
            model: The model that is traced; a run of it after the trace gets the answers of the trace.
            errors: The errors of torch about conditions; an answered one is removed.
        """


_path: ContextVar[DataPath | None] = ContextVar("fx_onnx_path", default=None)


def current_path() -> DataPath | None:
    """Returns the path on which a model is being captured; None without a path."""
    return _path.get()


@contextmanager
def on_path(path: DataPath) -> Iterator[None]:
    """Captures a model on a path within the context."""
    token = _path.set(path)
    try:
        yield
    finally:
        _path.reset(token)


def is_condition(error: Exception) -> bool:
    """Returns whether the code converts a tensor to a bool or a number of Python, or the model caught the error."""
    return not _CONVERSIONS.isdisjoint(_called(error))


def is_number(error: Exception) -> bool:
    """Returns whether the code calls ``int`` or ``float`` with a tensor, whose result strict mode keeps symbolic."""
    return _CONVERSIONS.intersection(_called(error)) in ({"__int__"}, {"__float__"})


def _called(error: Exception) -> list[str]:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if _converts(frame.f_code)]
    return [getattr(frame.f_locals.get("func"), "__name__", "__bool__") for frame in frames]


def _converts(code: CodeType) -> bool:
    """Returns whether code is that of this file, or of what answers conversions to a bool on a path."""
    is_answer = code.co_name == "__bool__" and code.co_filename.startswith(_PACKAGE)
    return code.co_filename == __file__ or is_answer


# torch asks for these facts of each weight often, before the model runs. No mode changes them.
_T: Any = torch.Tensor
_ATTRIBUTE = type(_T.shape.__get__)
_FACTS = frozenset({
    _T.stride, _T.storage_offset, _T.size, _T.dim, _T.numel, _T.untyped_storage, _T.is_floating_point, _T.is_complex,
    _T.is_contiguous, _T.is_inference, _T.is_conj, _T.is_neg, _T._is_view,
})  # fmt: skip


def asks_for_fact(func: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Returns whether a function of torch reads or sets an attribute of a tensor, or returns a fact of its layout."""
    return type(func) is _ATTRIBUTE or (func in _FACTS and not args[1:])


class Redirected(TorchFunctionMode):
    """Calls the replacements of torch's functions, and keeps the errors of functions whose results depend on data.

    Attributes:
        errors: The errors that torch raised, in order.
    """

    def __init__(self, replacements: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self._replacements = replacements
        self.errors: list[Exception] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls the function or its replacement."""
        if not kwargs and asks_for_fact(func, args):
            return func(*args)
        kwargs = {**kwargs} if kwargs else {}
        for kind in types:
            if not issubclass(kind, torch.Tensor):  # its own function calls others, which are redirected too
                with self:
                    return kind.__torch_function__(func, types, args, kwargs)
        called = self._replacements.get(func) or self._replaced(func, args, kwargs)
        try:
            result = called(*args, **kwargs)
        except UNDECIDED as error:
            self.errors.append(error)
            raise
        remember_number(func, args, kwargs, result)
        return result

    def _replaced(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        """Returns what a call without a replacement in the table calls: the function itself."""
        return func


@contextmanager
def watch_conditions(model: torch.nn.Module, errors: list[Exception]) -> Iterator[None]:
    """Keeps the errors about conditions on data of a model within the context, or lets the current path answer them.

    Args:
        model: The model that is traced.
        errors: The list of the errors of functions of torch, to which those of conditions are added.
    """
    path, answering = current_path(), partial(answered_by_sizes, keep=errors.append)
    with ExitStack() as stack:
        stack.enter_context(apply_patches([Patch(_EVALUATE, Around(answering), "A model could catch the error.")]))
        if path is not None:
            stack.enter_context(path.watched(model, errors))
        yield


_EVALUATE = "torch.fx.experimental.symbolic_shapes:ShapeEnv.evaluate_sym_node"


def calling_frame() -> Any:
    """Returns the frame that calls the caller, a replacement of torch's; frames that dispatch the call do not count."""
    frame: Any = sys._getframe(2)
    while frame.f_code.co_filename in _DISPATCHING:
        frame = frame.f_back
    return frame


def is_traced(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor is traced and has no values, unlike a plain tensor."""
    return type(tensor) not in (torch.Tensor, torch.nn.Parameter)


def left_out_checks(program: ExportedProgram, places: Iterable[str]) -> Iterator[str]:
    """Yields one sentence for each exception that the model raises if a condition on data holds, or one for many.

    ``torch._check`` is none of them: with it, a model states what is always true.

    Args:
        program: The captured program, in which torch records some assertions as operators.
        places: The places of the exceptions that the capture left out, as ``(file:line: code)``.
    """
    recorded = [call_line(node).strip() for node in nodes_of(program) if node.target in _ASSERTIONS]
    recorded = ["" if line.startswith("(<") else line for line in recorded]  # the code of a branch is in no file
    counts = Counter((*places, *recorded))
    common = [line for line, _ in counts.most_common(3) if line]
    wheres = [f" {line}" if line else "" for line in counts]
    if len(counts) > 3:
        wheres = [f" at {len(counts)} places, most often {', '.join(common)}"]
    for where in wheres:
        yield (
            f"The model raises an exception if a condition on data holds, and the exported model does not{where}; "
            "check the data before you run it."
        )
