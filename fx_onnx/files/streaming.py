"""Writes bytes and tensors to a file one after another, without a copy in memory, and with a progress bar.

The writer of onnx_ir needs a path, reports progress between tensors only, and does not check the number of bytes.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import onnx_ir as ir

from fx_onnx.messages.errors import OnnxExporterError
from fx_onnx.messages.progress import hides_progress, report_progress, shows_progress
from fx_onnx.onnx_model.weights import stream

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
    total = length(pieces)
    has_own_bar = total >= PROGRESS_FROM_BYTES and not (shows_progress() or hides_progress())
    with _bar(total) if has_own_bar else nullcontext() as bar:
        target = _Writer(file, bar)
        for piece in pieces:
            before = target.written
            report_progress(before, total)
            if isinstance(piece, bytes):
                target.write(piece)
                continue
            stream(piece, target)
            if target.written - before != piece.nbytes:  # the lengths in the file depend on it
                raise OnnxExporterError(
                    f"The weight {piece.name!r} has {target.written - before} bytes, but its dtype and shape need "
                    f"{piece.nbytes}."
                )


def length(pieces: Sequence[Piece]) -> int:
    """Returns the number of bytes that ``write`` writes."""
    return sum(len(piece) if isinstance(piece, bytes) else piece.nbytes for piece in pieces)


def _bar(total: int) -> Any:
    """Returns a progress bar on stderr. It is hidden if stderr is not a terminal."""
    from tqdm import tqdm

    return tqdm(desc="saving", total=total, unit="B", unit_scale=True, leave=False, disable=None)


class _Writer:
    """Writes to a file, which needs no ``seek``, and counts the bytes, in steps if they move a progress bar."""

    def __init__(self, file: Any, bar: Any) -> None:
        self._file, self._bar, self.written = file, bar, 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        step = max(size, 1) if self._bar is None else PROGRESS_STEP_BYTES
        for start in range(0, size, step):
            self._write(memoryview(data).cast("B")[start : start + step])
        self.written += size
        return size

    def _write(self, data: memoryview) -> None:
        """Repeats a write that was not complete. An unbuffered file or a pipe takes as much as fits at the moment."""
        done = 0
        while done < len(data):
            count = self._file.write(data[done:])
            if not isinstance(count, int) and not isinstance(self._file, io.RawIOBase):
                count = len(data) - done  # an object that does not count takes all
            if not count:
                raise OnnxExporterError(
                    f"The file took {done} of {len(data)} bytes and no more; save to a path, or to a blocking file."
                )
            done += count
        if self._bar is not None:
            self._bar.update(done)
