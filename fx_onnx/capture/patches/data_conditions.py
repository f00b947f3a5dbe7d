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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode

from fx_onnx.capture.patches.module_hooks import watch_calls
from fx_onnx.capture.patches.patching import Around, Patch, apply_patches, replace_attribute
from fx_onnx.capture.patches.tensor_numbers import remember_number
from fx_onnx.messages.errors import OnnxExporterError
from fx_onnx.messages.source_lines import call_site, is_internal, user_frame
from fx_onnx.onnx_model.metadata import call_line
from fx_onnx.torch_internals import threads
from fx_onnx.torch_internals.guard_private import answered_by_sizes
from fx_onnx.torch_internals.operators import aten, nodes_of
from fx_onnx.torch_internals.torch_private import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
)
from fx_onnx.torch_internals.trace_private import is_recorded

__all__ = [
    "UNDECIDED", "DataPath", "OffPathError", "Redirected", "Told", "calling_frame", "current_path",
    "is_condition", "is_number", "is_of_model", "is_traced", "left_out_checks", "on_path", "raise_handled",
    "watch_conditions",
]  # fmt: skip

UNDECIDED = (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)
"""What torch raises where a condition, a number or a size depends on data."""
_CONVERSIONS = frozenset({"__bool__", "__int__", "__float__", "__index__"})
_DISPATCHING = frozenset({__file__, str(Path(__file__).with_name("patching.py")), str(threads.__file__)})
_TORCH = Path(torch.__file__).parent
_AS_MODELS = (
    str(Path(__file__).with_name("torch_functions.py")),
    *(str(_TORCH / name) for name in ("_tensor.py", "nn", "distributions", "functional.py", "_export")),
)
_ASSERTIONS = (aten._assert_async.default, aten._assert_async.msg)


def raise_handled(errors: Iterable[Exception]) -> None:
    """Raises the first error of torch that the model caught, if there is one; torch's own code may catch others."""
    for error in errors:
        caught_in = error.__traceback__  # a traceback begins in the frame that caught the error
        if caught_in is not None and not is_internal(caught_in.tb_frame.f_code.co_filename):
            raise error


class OffPathError(OnnxExporterError):
    """Raised by a captured program that is one path of a model, where data or sizes take another branch."""


class Told(NamedTuple):
    """What a conversion to a bool returned.

    Attributes:
        answer: The answer; None if torch knew it.
        is_new: Whether the program gets the condition.
    """

    answer: bool | None = None
    is_new: bool = False


class DataPath(ABC):
    """The answers to the conditions on data on one path through the forward.

    A run of the forward after the trace gets the answers of the trace, by the place of the call.

    Attributes:
        is_trace: whether no run has ended since ``begin``.
        converts: whether torch converts a value, which calls each mode that sees functions.
    """

    def __init__(self) -> None:
        self._told = defaultdict[Any, list[Told]](list)
        self._calls = Counter[Any]()

    def begin(self) -> None:
        """Begins a trace: the capture of a path may take several."""
        self._told.clear()
        self.is_trace, self.converts = True, False

    def run(self, call: Callable[[], Any]) -> Any:
        """Runs the forward."""
        self._calls.clear()
        try:
            return call()
        finally:
            self.is_trace = False

    def recall(self, frame: Any, value: Any) -> Told | None:
        """Returns what the trace was told where a frame converts a value to a bool; None in the trace itself."""
        site = _site(frame, value)
        told, count = self._told[site], self._calls[site]
        self._calls[site] += 1
        return told[count] if count < len(told) else None

    def keep(self, frame: Any, value: Any, told: Told) -> Told:
        """Keeps what the trace is told."""
        self._told[_site(frame, value)].append(told)
        return told

    @abstractmethod
    def decide(self, value: Any, frame: Any) -> Told:
        """Returns the answer for a tensor or a symbolic bool that a frame converts."""

    @abstractmethod
    def mark(self, value: Any, answer: bool) -> None:
        """Records a condition and its answer in the program."""


def _site(frame: Any, value: Any) -> Any:
    """Returns the call of the model's code, and whether it converts a tensor.

    torch's code around it is another one after the trace, and Python then compares sizes without asking anyone.
    """
    return call_site(user_frame(frame)), isinstance(value, torch.Tensor)


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
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == __file__]
    return [getattr(frame.f_locals.get("func"), "__name__", "__bool__") for frame in frames]


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
            path.begin()
            stack.enter_context(watch_calls({model: path.run}))
            replaced = {kind: _answering(kind.__bool__, path, errors) for kind in (torch.Tensor, torch.SymBool)}
            is_nonzero = _is_nonzero(replaced[torch.SymBool])
            for kind, convert in (*replaced.items(), (torch.SymInt, is_nonzero), (torch.SymFloat, is_nonzero)):
                stack.enter_context(replace_attribute(kind, "__bool__", convert))
        yield


_EVALUATE = "torch.fx.experimental.symbolic_shapes:ShapeEnv.evaluate_sym_node"


def _answering(convert: Callable[[Any], bool], path: DataPath, errors: list[Exception]) -> Any:
    """Returns a replacement of ``__bool__`` that answers as a path does what torch cannot decide."""

    def __bool__(self: Any) -> bool:
        frame = calling_frame()
        if not is_of_model(frame.f_code.co_filename) or path.converts:
            return convert(self)
        told, count = path.recall(frame, self), len(errors)
        if told is None or told.answer is None:
            path.converts = True
            try:
                answer = convert(self)
                if told is None:
                    path.keep(frame, self, Told())
                return answer
            except UNDECIDED:
                if told is not None or not path.is_trace:
                    raise
                if isinstance(self, torch.Tensor) and not is_recorded(self):
                    raise  # within an operator, whose calls the program does not have
                del errors[count:]
            finally:
                path.converts = False
            told = path.keep(frame, self, path.decide(self, frame))
        if told.is_new:
            path.mark(self, bool(told.answer))
        return bool(told.answer)

    return __bool__


def _is_nonzero(convert: Callable[[Any], bool]) -> Any:
    """Returns a replacement of ``__bool__`` of a symbolic number, which converts its comparison with 0."""

    def __bool__(self: Any) -> bool:
        condition = self != 0
        return condition if isinstance(condition, bool) else convert(condition)

    return __bool__


def is_of_model(filename: str) -> bool:
    """Returns whether a file has the code of a model, or functions of torch that decide and raise as such code does."""
    return not is_internal(filename) or filename.startswith(_AS_MODELS)


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
