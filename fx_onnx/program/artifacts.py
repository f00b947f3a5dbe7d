"""The files that an export can leave beside the model: report, profile, captured program."""

from __future__ import annotations

import cProfile
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import torch

from fx_onnx.core.errors import OnnxExporterError
from fx_onnx.program.export_log import ExportLog


@contextmanager
def kept(
    log: ExportLog, folder: str | os.PathLike[str], *, report: bool, profile: bool, exported_program: bool
) -> Iterator[None]:
    """Writes what was asked for into ``folder`` when the export inside ends, also when it ends with an error.

    Args:
        log: what the export does is noted there.
        folder: made if it is not there and something is written.
        report: a Markdown report of all that the log knows.
        profile: the functions that took the time, as text.
        exported_program: the captured program, as a ``.pt2`` archive.
    """
    if profile:
        log.profile = cProfile.Profile()
        log.profile.enable()
    error: OnnxExporterError | None = None
    try:
        yield
    except OnnxExporterError as failure:
        error = failure
        raise
    finally:
        if log.profile is not None:
            log.profile.disable()
            _path(folder, "profile.txt").write_text(log.profile_text() or "", encoding="utf-8")
        if exported_program and log.captured is not None:
            torch.export.save(log.captured.exported_program, _path(folder, "program.pt2"))
        if report:
            log.write(folder, error)


def _path(folder: str | os.PathLike[str], name: str) -> Path:
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder) / f"onnx_export_{datetime.now():%Y-%m-%d_%H-%M-%S-%f}_{name}"
