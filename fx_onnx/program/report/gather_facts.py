"""Adds to the facts of an export those of its model, for all forms of the report."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version as package_version
from pathlib import Path
from typing import TYPE_CHECKING

from torch.export import ExportedProgram

from fx_onnx.core.errors import OnnxExporterError
from fx_onnx.core.version import version
from fx_onnx.program.report.facts import Facts
from fx_onnx.program.report.graph_facts import graph_facts
from fx_onnx.program.serialization import referenced_files
from fx_onnx.program.verification.tensor_comparison import Difference
from fx_onnx.program.verification.verification_result import Verification
from fx_onnx.targets.kernel_support import Support, support
from fx_onnx.targets.known_targets import NAMES, find_target

if TYPE_CHECKING:
    from fx_onnx.program.onnx_program import ONNXProgram

__all__ = ["gather", "gather_head"]

_PACKAGES = ("torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "numpy")


def gather(facts: Facts, program: ONNXProgram | None, exported_program: ExportedProgram | None = None) -> Facts:
    """Returns the facts together with those of the model.

    Args:
        facts: the facts of the export; empty ones for a model that was read from a file.
        program: the program, or None if the export failed before it was made.
        exported_program: the captured program.
    """
    facts = replace(
        facts,
        versions=_versions(),
        exported_program=str(exported_program) if exported_program is not None else None,
    )
    if program is None:
        return facts
    return replace(
        gather_head(facts, program),
        graphs=graph_facts(program.model),
        support=_support(program),
        values=_values(facts.verification),
    )


def gather_head(facts: Facts, program: ONNXProgram) -> Facts:
    """Returns the facts with the figures of the model, for the head of the report."""
    files = _files(program.file) if program.file is not None else {}
    return replace(facts, versions=_versions(), model=program.summary(), files=files)


def _values(verification: Verification | None) -> tuple[Difference, ...]:
    """Returns the differences of the values inside the model, for which it runs once more if the export compared it."""
    if verification is None:
        return ()
    try:
        return verification.values
    except OnnxExporterError:  # the model was changed since, or has no captured program
        return ()


def _versions() -> dict[str, str]:
    return {
        "fx_onnx": version(),
        **{package: package_version(package) for package in _PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def _support(program: ONNXProgram) -> list[Support]:
    """Returns the support of the model by each target that has a table."""
    known = map(find_target, NAMES)
    return [support(program.model, target) for target in known if target.table or target.lacks]


def _files(path: Path) -> Mapping[str, int]:
    """Returns the size in bytes of a saved model and of its data files; empty if the file is gone."""
    try:
        names = [path.name, *sorted(referenced_files(path))]
        return {name: os.stat(path.parent / name).st_size for name in names}
    except OSError:
        return {}
