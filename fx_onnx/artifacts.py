"""The files that an export can leave beside the model: report, profile, captured program."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import torch

from fx_onnx.errors import OnnxExporterError
from fx_onnx.journal import Journal


class Artifacts:
    """The files beside the model that an export was asked for."""

    def __init__(self, folder: Path, report: bool, exported_program: bool) -> None:
        self.folder, self.report, self.exported_program = folder, report, exported_program

    def write(self, journal: Journal, error: OnnxExporterError | None) -> None:
        """Writes them, after an export that ended well or with ``error``."""
        if journal.profile is not None:
            journal.profile.disable()
            self._path("profile.txt").write_text(journal.profile_text() or "", encoding="utf-8")
        if self.exported_program and journal.captured is not None:
            torch.export.save(journal.captured.exported_program, self._path("program.pt2"))
        if self.report:
            journal.write(self.folder, error)

    def _path(self, name: str) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"onnx_export_{datetime.now():%Y-%m-%d_%H-%M-%S-%f}_{name}"
