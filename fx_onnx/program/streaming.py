"""Writes bytes and tensors to a file one after another, without a copy in memory, and with a progress bar."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import onnx_ir as ir

from fx_onnx.core.errors import OnnxExporterError
from fx_onnx.core.progress import hides_progress, report_progress, shows_progress
from fx_onnx.core.weights import stream

__all__ = ["Piece", "length", "write"]

Piece = bytes | ir.TensorProtocol

PROGRESS_FROM_BYTES = 1024**3
"""No progress bar below this size."""
PROGRESS_STEP_BYTES = 32 * 1024**2
"""How many bytes are written between two updates of the progress bar."""


def write(pieces: Sequence[Piece], file: Any) -> None:
    """Writes all pieces in order. A progress bar appears above 1 GB.

    Raises:
        OnnxExporterError: the number of bytes of a tensor does not match its dtype and shape, or the file takes no more
            bytes.
    """
    total, whole = length(pieces), _Whole(file)
    has_own_bar = total >= PROGRESS_FROM_BYTES and not (shows_progress() or hides_progress())
    done = 0
    with _Progress(whole, total) if has_own_bar else nullcontext(whole) as target:
        for piece in pieces:
            report_progress(done, total)
            done += len(piece) if isinstance(piece, bytes) else piece.nbytes
            if isinstance(piece, bytes):
                target.write(piece)
            else:
                _write_tensor(piece, target)


def length(pieces: Sequence[Piece]) -> int:
    """Returns the number of bytes that ``write`` writes."""
    return sum(len(piece) if isinstance(piece, bytes) else piece.nbytes for piece in pieces)


class _Whole:
    """Repeats writes that were not complete. An unbuffered file or a pipe writes as much as fits at the moment."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        written = self._file.write(data)
        if written is None and isinstance(self._file, io.RawIOBase):
            written = 0
        while isinstance(written, int) and written < size:
            count = self._file.write(memoryview(data).cast("B")[written:])
            if not count:
                raise OnnxExporterError(f"The file took {written} of {size} bytes and no more.")
            written += count
        return size


class _Progress:
    """A file with a progress bar on stderr. The bar is hidden if stderr is not a terminal."""

    def __init__(self, file: Any, total: int) -> None:
        from tqdm import tqdm

        self._file = file
        self._bar = tqdm(desc="saving", total=total, unit="B", unit_scale=True, leave=False, disable=None)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), PROGRESS_STEP_BYTES):
            piece = view[start : start + PROGRESS_STEP_BYTES]
            self._file.write(piece)
            self._bar.update(len(piece))
        return len(view)


class _Counted:
    """Counts the bytes that are written to a file. It needs no ``seek``, so that a tensor can be streamed to a pipe."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.written = 0

    def write(self, data: Any) -> int:
        count = memoryview(data).nbytes
        self._file.write(data)
        self.written += count
        return count


def _write_tensor(tensor: ir.TensorProtocol, file: Any) -> None:
    """Streams the data of a tensor and checks its length, on which the lengths in the file depend."""
    counted = _Counted(file)
    stream(tensor, counted)
    if counted.written != tensor.nbytes:
        raise OnnxExporterError(
            f"The weight {tensor.name!r} has {counted.written} bytes, but its dtype and shape need {tensor.nbytes}."
        )
