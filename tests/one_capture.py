"""One capture for several exports: the opset, the target and the passes act after it, and it takes most of the time."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

import fx_onnx
from fx_onnx import pipeline
from fx_onnx.capture.capture import Capture, Decided
from fx_onnx.requests.request import Request
from fx_onnx.torch_internals.torch_private import pytree


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


@contextmanager
def equal_parts_once(captures: dict[str, Capture]) -> Iterator[None]:
    """Lets exports of the parts of a model, such as those of a folder, take the captures of equal parts.

    Args:
        captures: those of earlier contexts, to which this one adds its own.

    Raises:
        AssertionError: an export changed a captured program, which the next one would see.
    """
    graphs: dict[str, str] = {}

    def once(request: Request, decided: Decided = print) -> Capture:
        key = _key(request)
        if key not in captures:
            captures[key] = _CAPTURE(request, decided)
        graph = str(captures[key].exported_program)
        assert graphs.setdefault(key, graph) == graph, "an export changed the captured program"
        return captures[key]

    with mock.patch.object(pipeline, "capture", once):
        yield


def _key(request: Request) -> str:
    """Returns a hash of the layers, weights and example of a part, and of the other arguments of a capture."""
    model = request.model
    assert isinstance(model, torch.nn.Module)
    options = request.dynamic_shapes, request.input_names, request.output_names, request.training, request.weights
    buffer = io.BytesIO(repr((type(model), model, list(request.kwargs), options)).encode())
    buffer.seek(0, io.SEEK_END)
    leaves = [*pytree.tree_leaves((request.args, request.kwargs)), *model.state_dict().items()]
    torch.save(pytree.tree_map_only(torch.Tensor, lambda each: each.detach().clone(), leaves), buffer)
    return hashlib.sha256(buffer.getvalue()).hexdigest()


_CAPTURE = pipeline.capture
