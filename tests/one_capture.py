"""One capture for several exports: the opset, the target and the passes act after it, and it takes most of the time."""

from __future__ import annotations

from typing import Any
from unittest import mock

import fx_onnx
from fx_onnx import pipeline
from fx_onnx.capture.capture import Capture, Decided
from fx_onnx.requests.request import Request


class OneCapture:
    """Exports a model as ``fx_onnx.export`` does with the same arguments; the first export captures it for all.

    Raises:
        AssertionError: an export changed the captured program, which the next one would see.
    """

    def __init__(self, *args: Any, **arguments: Any) -> None:
        self.args, self.arguments = args, arguments
        self._captured: Capture | None = None
        self._graph = ""

    def export(self, **options: Any) -> fx_onnx.ONNXProgram:
        """Exports with options that do not concern the capture, such as ``opset_version`` and ``optimize``."""
        with mock.patch.object(pipeline, "capture", self._capture):
            return fx_onnx.export(*self.args, **self.arguments, **options)

    def _capture(self, request: Request, decided: Decided = print) -> Capture:
        if self._captured is None:
            self._captured = _CAPTURE(request, decided)
            self._graph = str(self._captured.exported_program)
        else:
            assert str(self._captured.exported_program) == self._graph, "an export changed the captured program"
        return self._captured


_CAPTURE = pipeline.capture
