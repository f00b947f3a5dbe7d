"""The files that an export can leave beside the model: the report, the profile and the captured program."""

from __future__ import annotations

import cProfile
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import torch

from fx_onnx.core.errors import OnnxExporterError
from fx_onnx.core.findings import warn
from fx_onnx.core.messages import MessageId
from fx_onnx.program.destination import check_folder
from fx_onnx.program.export_log import ExportLog

__all__ = ["record"]


@contextmanager
def record(
    folder: str | os.PathLike[str], *, verbose: bool | None, report: bool, profile: bool, program: bool
) -> Iterator[ExportLog]:
    """Yields the log of one export, and writes the requested files when the export ends, even with an error.

    A file that cannot be written is a warning, because the program, or the error of the export, is worth more.

    Args:
        folder: the folder of the files. It is created if a file is written.
        verbose: whether the log prints a line for each stage.
        report: whether to write a report of the log, as HTML and as Markdown.
        profile: whether to profile the export, and to write the functions that took the most time.
        program: whether to write the captured program as a ``.pt2`` archive, if capture succeeded.

    Raises:
        ArgumentError: a file is requested, and files cannot be written to the folder before the export begins.
    """
    if report or profile or program:
        check_folder("artifacts_dir", folder)
    log = ExportLog(verbose=bool(verbose), detailed=report)
    if profile:
        log.profile = cProfile.Profile()
        log.profile.enable()
    error: OnnxExporterError | None = None
    try:
        yield log
    except OnnxExporterError as failure:
        error = failure
        raise
    finally:
        if log.profile is not None:
            log.profile.disable()
            with _optional("profile"):
                _path(folder, "profile.txt").write_text(log.profile_text() or "", encoding="utf-8")
        if program and log.captured is not None:
            with _optional("captured program"):
                torch.export.save(log.captured.exported_program, _path(folder, "program.pt2"))
        if report:
            with _optional("report"):
                log.write(folder, error)


@contextmanager
def _optional(artifact: str) -> Iterator[None]:
    """Turns a failure to write a file into a warning. torch.export.save pickles objects of the user, which may fail."""
    try:
        yield
    except Exception as error:
        warn(f"The {artifact} was not written: {type(error).__name__}: {error}", MessageId.ARTIFACT)


def _path(folder: str | os.PathLike[str], name: str) -> Path:
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder) / f"onnx_export_{datetime.now():%Y-%m-%d_%H-%M-%S-%f}_{name}"
