"""The facts of one export: what every report shows, as data."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version as package_version
from pathlib import Path
from typing import TYPE_CHECKING

from torch.export import ExportedProgram

from fx_onnx.extension_points.rooms import is_installed
from fx_onnx.files.serialization import referenced_files
from fx_onnx.messages.errors import OnnxExporterError
from fx_onnx.program.export_facts import Facts
from fx_onnx.report.graph_facts import graph_facts
from fx_onnx.targets.kernel_support import Support, support
from fx_onnx.targets.known_targets import NAMES, find_target
from fx_onnx.torch_internals.version import version
from fx_onnx.verification.tensor_comparison import Difference
from fx_onnx.verification.verification_result import Verification

if TYPE_CHECKING:
    from fx_onnx.program.onnx_program import ONNXProgram

__all__ = [
    "Verdict",
    "compared_outputs",
    "gather",
    "gather_head",
    "verdict_of",
]


# ---------------------------------------------------------------- the facts of the model

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
    """Returns the support of the model by each target that has a table; none without the room of other runtimes."""
    if not is_installed("backends"):
        return []
    known = map(find_target, NAMES)
    return [support(program.model, target) for target in known if target.table or target.lacks]


def _files(path: Path) -> Mapping[str, int]:
    """Returns the size in bytes of a saved model and of its data files; empty if the file is gone."""
    try:
        names = [path.name, *sorted(referenced_files(path))]
        return {name: os.stat(path.parent / name).st_size for name in names}
    except OSError:
        return {}


# ---------------------------------------------------------------- the result


@dataclass(frozen=True)
class Verdict:
    """The result of an export in one sentence.

    Attributes:
        state: ``passed``, ``unverified``, ``failed``, or ``read`` for a model that was read from a file.
        title: the sentence.
        details: further sentences.
    """

    state: str
    title: str
    details: tuple[str, ...] = ()


def verdict_of(facts: Facts) -> Verdict:
    """Returns the result in one sentence, and what else a reader must know."""
    details = [str(finding) for finding in facts.findings]
    if facts.error is not None or facts.failed_stage:
        where = f" in the stage {facts.failed_stage}" if facts.failed_stage else ""
        return Verdict("failed", f"The export failed{where}.", (facts.message, *details))
    if not facts.stages:
        return Verdict("read", "The model was read from a file.")
    result = facts.verification
    if result is None:
        return Verdict("unverified", "Exported. The results were not compared with those of the module.", (*details,))
    if not result.ok:
        cause = (result.cause.text,) if result.cause is not None else ()
        bad = [f"{one.name}{sizes}: {one.problem}" for sizes, one in compared_outputs(facts) if not one.ok]
        bad += [f"{run.sizes}: {run.problem}" for run in result.sizes if run.problem]
        title = "Exported, but the results differ from those of the module."
        return Verdict("failed", title, (*cause, *bad, *details))
    largest = f"The largest difference is {result.max_rel:.2g} of the largest magnitude of its output."
    number = len(result.outputs)
    outputs = {1: "The output agrees", 2: "Both outputs agree"}.get(number, f"All {number} outputs agree")
    sizes = "".join(f" It also agrees at {run.sizes}." for run in result.sizes)
    details = [largest + sizes, *result.remarks, *details]
    return Verdict("passed", f"Exported and verified. {outputs} with the module.", tuple(details))


def compared_outputs(facts: Facts) -> Iterator[tuple[str, Difference]]:
    """Yields the compared outputs: first with the given arguments, then with other sizes, which the text names."""
    for run in facts.verification.runs if facts.verification is not None else ():
        yield from ((f" at {run.sizes}" if run.sizes else "", one) for one in run.outputs)
