"""Answers the conversions to a bool of a forward on one path, where torch cannot decide them."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fx_onnx.capture.patches import torch_functions
from fx_onnx.capture.patches.data_conditions import UNDECIDED, DataPath, calling_frame
from fx_onnx.capture.patches.module_hooks import watch_calls
from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.messages.source_lines import call_site, is_internal, user_frame
from fx_onnx.torch_internals.trace_private import is_recorded

__all__ = ["PathAnswers", "Told", "is_of_model"]

_SYMBOLIC = (torch.SymBool, torch.SymInt, torch.SymFloat)
_TORCH = Path(torch.__file__).parent
_AS_MODELS = (
    str(torch_functions.__file__),
    *(str(_TORCH / name) for name in ("_tensor.py", "nn", "distributions", "functional.py", "_export")),
)


class Told(NamedTuple):
    """What a conversion to a bool returned.

    Attributes:
        answer: The answer; None if torch knew it.
        is_new: Whether the program gets the condition.
    """

    answer: bool | None = None
    is_new: bool = False


class PathAnswers(DataPath):
    """The answers on one path. A run of the forward after the trace gets those of the trace, by the place of the call.

    Attributes:
        is_trace: whether no run has ended since ``begin``.
    """

    def __init__(self) -> None:
        self._told = defaultdict[Any, list[Told]](list)
        self._calls = Counter[Any]()
        self._converts = False  # torch converts a value, which calls each mode that sees functions

    @contextmanager
    def watched(self, model: torch.nn.Module, errors: list[Exception]) -> Iterator[None]:
        """Answers what torch cannot decide, within the context of a trace."""
        self.begin()
        converters: dict[type, Any] = {torch.Tensor: torch.Tensor.__bool__}
        converters |= dict.fromkeys(_SYMBOLIC, torch.SymBool.__bool__)
        with ExitStack() as stack:
            stack.enter_context(watch_calls({model: self.run}))
            for kind, convert in converters.items():
                stack.enter_context(replace_attribute(kind, "__bool__", self._answering(convert, errors)))
            yield

    def begin(self) -> None:
        """Begins a trace: the capture of a path may take several."""
        self._told.clear()
        self.is_trace, self._converts = True, False

    def run(self, call: Callable[[], Any]) -> Any:
        """Runs the forward."""
        self._calls.clear()
        try:
            return call()
        finally:
            self.is_trace = False

    @abstractmethod
    def decide(self, value: Any, frame: Any) -> Told:
        """Returns the answer for a tensor or a symbolic bool that a frame converts."""

    @abstractmethod
    def mark(self, value: Any, answer: bool) -> None:
        """Records a condition and its answer in the program."""

    def _answering(self, convert: Callable[[Any], bool], errors: list[Exception]) -> Any:
        """Returns a replacement of ``__bool__``; a number is compared with 0."""

        def __bool__(value: Any) -> bool:
            if isinstance(value, (torch.SymInt, torch.SymFloat)):
                value = value != 0
                if isinstance(value, bool):
                    return value
            frame = calling_frame()
            if not is_of_model(frame.f_code.co_filename) or self._converts:
                return convert(value)
            site = _site(frame, value)
            known, count = self._told[site], self._calls[site]
            self._calls[site] += 1
            told = known[count] if count < len(known) else None
            if told is None or told.answer is None:
                before, self._converts = len(errors), True
                try:
                    answer = convert(value)
                    if told is None:
                        known.append(Told())
                    return answer
                except UNDECIDED:
                    if told is not None or not self.is_trace:
                        raise
                    if isinstance(value, torch.Tensor) and not is_recorded(value):
                        raise  # within an operator, whose calls the program does not have
                    del errors[before:]
                finally:
                    self._converts = False
                told = self.decide(value, frame)
                known.append(told)
            if told.is_new:
                self.mark(value, bool(told.answer))
            return bool(told.answer)

        return __bool__


def _site(frame: Any, value: Any) -> Any:
    """Returns the call of the model's code, and whether it converts a tensor.

    torch's code around it is another one after the trace, and Python then compares sizes without asking anyone.
    """
    return call_site(user_frame(frame)), isinstance(value, torch.Tensor)


def is_of_model(filename: str) -> bool:
    """Returns whether a file has the code of a model, or functions of torch that decide and raise as such code does."""
    return not is_internal(filename) or filename.startswith(_AS_MODELS)
