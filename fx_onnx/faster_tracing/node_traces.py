"""Stack traces of nodes: only the frames that torch keeps are read, and a text is made once."""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from operator import is_ as _is
from types import CodeType, FrameType
from typing import Any

from fx_onnx.faster_tracing.replacement import Replacement

__all__ = ["REPLACEMENTS"]


def _make(original: Callable[..., Any], call: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    """Returns ``create_node`` that leaves the trace out of torch's own, and then adds it, and ``call_module``.

    torch reads all frames of the stack, with their lines of source, and then keeps those of functions ``forward``, of
    ``torch/__init__.py`` and of registered functions. These are chosen by the file and the name of a code object, so
    the others need not be read. The text of equal frames is equal as long as linecache, from which
    ``traceback`` reads the lines, has the same entries for their files. The trace is the last thing that torch's
    ``create_node`` writes, so the metadata have the same order.

    While ``call_module`` runs, the frames outside of it wait at the same lines. It is no generator, so its caller does
    not change either. These frames are read once for each call of a module.
    """
    texts = _Texts()
    keep = vars(import_module("torch.fx.proxy").TracerBase)["_filter_traceback_frames"]

    def create_node(self: Any, *args: Any, **kwargs: Any) -> Any:
        settings = vars(self)
        if (
            settings.get("record_stack_traces") is not True
            or settings.get("_record_forward_stack_traces_only") is not True
            or getattr(type(self), "_filter_traceback_frames", None) is not keep
        ):
            return original(self, *args, **kwargs)
        settings["record_stack_traces"] = False
        try:
            node = original(self, *args, **kwargs)
        finally:
            settings["record_stack_traces"] = True
        if not node.stack_trace and (text := texts.of(sys._getframe(1))):
            node.stack_trace = text
        return node

    def call_module(self: Any, *args: Any, **kwargs: Any) -> Any:
        texts.enter(sys._getframe())
        try:
            return call(self, *args, **kwargs)
        finally:
            texts.leave()

    return create_node, call_module


class _Texts:
    """The texts of the traces of one capture."""

    def __init__(self) -> None:
        self._anchors: set[tuple[str, str]] = import_module("torch.fx.proxy")._STACK_TRACE_ANCHORS
        self._skipped = import_module("torch.fx.experimental.symbolic_shapes").uninteresting_files
        self._count = len(self._anchors)
        # By the id of a code object, because code objects of different files may be equal. It is kept, so that no other
        # one gets its id.
        self._codes: dict[int, tuple[CodeType, bool]] = {}
        self._texts: dict[tuple[int, ...], tuple[list[Any], str]] = {}
        self._waiting: list[tuple[FrameType | None, tuple[int, ...]]] = []

    def of(self, frame: FrameType | None) -> str:
        """Returns the trace of the frames from one outwards; an empty string if torch keeps none of them."""
        key = self._key(frame)
        return self._text(key) if key else ""

    def enter(self, frame: FrameType) -> None:
        """Reads the frames from one outwards. They wait until ``leave`` is called."""
        self._waiting.append((frame, self._key(frame)))

    def leave(self) -> None:
        """Forgets the frames that the last call of ``enter`` has read."""
        self._waiting.pop()

    def _key(self, frame: FrameType | None) -> tuple[int, ...]:
        """Returns the code and the line of each frame that torch keeps, from one outwards."""
        if len(self._anchors) != self._count:
            self._codes.clear()
            self._texts.clear()
            self._waiting = [(None, ())] * len(self._waiting)
            self._count = len(self._anchors)
        codes, key = self._codes, []
        known_frame, outer = self._waiting[-1] if self._waiting else (None, ())
        while frame is not known_frame and frame is not None:
            code = frame.f_code
            known = codes.get(id(code))
            if known is None:
                known = codes[id(code)] = code, self._is_kept(code)
            if known[1]:
                key += [id(code), frame.f_lineno]
            frame = frame.f_back
        return (*key, *outer) if frame is not None else tuple(key)

    def _is_kept(self, code: CodeType) -> bool:
        name, file = code.co_name, code.co_filename
        return name == "forward" or file.endswith("torch/__init__.py") or (file, name) in self._anchors

    def _text(self, key: tuple[int, ...]) -> str:
        codes = [self._codes[number][0] for number in key[::2]]
        entries = [linecache.cache.get(code.co_filename) for code in codes]
        known = self._texts.get(key)
        if known is not None and len(known[0]) == len(entries) and all(map(_is, known[0], entries)):
            return known[1]
        frames = [
            traceback.FrameSummary(code.co_filename, line, code.co_name)
            for code, line in zip(reversed(codes), key[::-2], strict=True)
            if code.co_filename not in self._skipped()
        ]
        text = "".join(traceback.StackSummary.from_list(frames).format()).strip()
        self._texts[key] = [linecache.cache.get(code.co_filename) for code in codes], text
        return text


REPLACEMENTS = (
    Replacement(
        ("torch.fx.proxy:TracerBase.create_node", "torch.fx.experimental.proxy_tensor:_ModuleStackTracer.call_module"),
        _make,
        "For each node, all frames of the stack are read with their lines, also those that the trace leaves out.",
        repeats=(
            "torch.fx.proxy:TracerBase._filter_traceback_frames",
            "torch.fx.experimental.symbolic_shapes:uninteresting_files",
            "torch.utils._traceback:CapturedTraceback.extract",
            "torch.utils._traceback:CapturedTraceback.summary",
            "torch.utils._traceback:_extract_symbolized_tb",
        ),
    ),
)
