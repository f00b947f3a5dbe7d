"""The log of one export: the time and the decisions of each stage, and the facts for the report."""

from __future__ import annotations

import cProfile
import io
import logging
import os
import pstats
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.fx

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.decompose import find_translation
from fx_onnx.capture.capture import Capture
from fx_onnx.extension_points import rooms
from fx_onnx.extension_points.translation_table import TranslationTable
from fx_onnx.files.destination import check_folder
from fx_onnx.messages.errors import OnnxExporterError
from fx_onnx.messages.findings import current_findings, warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.messages.source_lines import function_location
from fx_onnx.passes.rewriter import NodeChange, Pass, count_nodes
from fx_onnx.program.export_facts import Facts, PassOutcome, StageOutcome, TranslatedOperator
from fx_onnx.program.onnx_program import ONNXProgram
from fx_onnx.program.progress_bar import ProgressBar

if TYPE_CHECKING:
    from fx_onnx.verification.verification_result import Verification

_logger = logging.getLogger("fx_onnx.stages")


@dataclass
class ExportLog:
    """Collects the times, the decisions and the results of one export.

    Attributes:
        verbose: whether each stage prints a line when it ends.
        stages: the names of all stages, in order.
        seconds: stage name → seconds, for the stages that ended.
        failed: the name of the stage that raised an error.
        notes: stage name → what the stage decided, for example why it was skipped.
        captured: the result of capture.
        decomposed: the program after decomposition.
        table: the translations that the export used.
        program: the ONNX program, from translation on.
        verification: the comparison of the program with the module.
        profile: the profiler, if the export is profiled.
        call: the call of ``export()`` as text.
        model_name: the class of the exported module.
        detailed: whether the facts list the translations, which takes a look-up for each node, and the time of each
            module, which takes hooks.
        module_seconds: the path of a module → the seconds that its forward took during capture.
        passes: what the passes changed.
        progress: whether to show a progress bar; None shows it on a terminal and in a notebook.
        bar: the progress bar, if it is shown.
    """

    verbose: bool = False
    stages: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    failed: str | None = None
    notes: dict[str, list[str]] = field(default_factory=dict)
    captured: Capture | None = None
    decomposed: AtenProgram | None = None
    table: TranslationTable | None = None
    program: ONNXProgram | None = None
    verification: Verification | None = None
    profile: cProfile.Profile | None = None
    call: str = ""
    model_name: str = ""
    detailed: bool = False
    module_seconds: dict[str, float] = field(default_factory=dict)
    passes: list[PassOutcome] = field(default_factory=list)
    progress: bool | None = None
    bar: ProgressBar | None = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Announces a stage, times it and records whether it failed."""
        begin = time.perf_counter()
        _logger.info("%s ...", name)
        if self.bar is not None:
            self.bar.start(name)
        try:
            yield
        except BaseException:
            self.failed = name
            raise
        finally:
            self.seconds[name] = time.perf_counter() - begin
            _logger.debug("%s: %.2f s", name, self.seconds[name])
        if self.verbose:
            print_line("; ".join([f"{name}: {self.seconds[name]:.2f} s", *self.notes.get(name, ())]))

    def decided(self, stage: str, text: str) -> None:
        """Records what a stage decided."""
        self.notes.setdefault(stage, []).append(text)
        _logger.debug("%s: %s", stage, text)

    @contextmanager
    def changes(self, stage: str, program: ONNXProgram, passes: Sequence[Pass]) -> Iterator[dict[str, NodeChange]]:
        """Yields the dict into which a stage counts what its passes change, and records the counts when it ends.

        Args:
            stage: the name of the stage.
            program: the program that the passes change.
            passes: the passes, in order.
        """
        counts: dict[str, NodeChange] = {}
        nodes = count_nodes(program.model)
        yield counts
        for name in dict.fromkeys(step.name for step in passes if step.name in counts):
            change, before = counts[name], nodes
            nodes += change.nodes
            switch = f"optimize={{{name!r}}}" if stage == "optimize" else ""
            self.passes.append(PassOutcome(name, stage, change.applied, before, nodes, switch))

    def facts(self, error: BaseException | None = None) -> Facts:
        """Returns the facts of the export. A report adds those of the model."""
        exported = self.captured.exported_program if self.captured is not None else None
        return Facts(
            stages=[
                StageOutcome(name, self.seconds.get(name), self._outcome(name), "; ".join(self.notes.get(name, ())))
                for name in dict.fromkeys((*self.stages, *self.seconds))
            ],
            error="".join(traceback.format_exception(error)) if error is not None else None,
            message=str(error) if error is not None else "",
            call=self.call,
            model_name=self.model_name,
            operators_before=count_operators(exported.graph) if exported is not None else None,
            operators_after=count_operators(self.decomposed.graph) if self.decomposed is not None else None,
            translated_operators=self._translated_operators() if self.detailed else None,
            dims=self.captured.dims if self.captured is not None else None,
            findings=current_findings(),
            passes=tuple(self.passes),
            verification=self.verification,
            module_seconds=dict(self.module_seconds),
            profile=self.profile_text(),
        )

    def write(self, folder: str | os.PathLike[str], error: BaseException | None = None) -> Path:
        """Writes the report to ``folder``, as HTML and as Markdown, and returns the path of the HTML file."""
        exported = self.captured.exported_program if self.captured is not None else None
        path: Path = rooms.find("program", "report")(self.facts(error), self.program, exported, folder)
        if self.verbose:
            print_line(f"report: {path}")
        return path

    def profile_text(self) -> str | None:
        """Returns the functions that took the most time, or None if the export is not profiled."""
        if self.profile is None:
            return None
        text = io.StringIO()
        pstats.Stats(self.profile, stream=text).sort_stats("cumulative").print_stats(60)
        return text.getvalue()

    def _outcome(self, name: str) -> bool | None:
        return None if name not in self.seconds else name != self.failed

    def _translated_operators(self) -> list[TranslatedOperator] | None:
        if self.decomposed is None or self.table is None:
            return None
        nodes = (node for node in self.decomposed.graph.nodes if node.op == "call_function")
        used = Counter((str(n.target), entry.function) for n in nodes if (entry := find_translation(n, self.table)))
        return [
            TranslatedOperator(target, *function_location(function), count)
            for (target, function), count in used.items()
        ]


def print_line(text: str) -> None:
    """Prints one line in ASCII."""
    print_text(f"[fx_onnx] {text}")


def print_text(text: str) -> None:
    """Prints text in ASCII, which every console can show."""
    sys.stdout.write(text.encode("ascii", "replace").decode() + "\n")
    sys.stdout.flush()


def count_operators(graph: torch.fx.Graph) -> dict[str, int]:
    """Returns the number of FX nodes of each target, the most frequent target first."""
    targets = Counter(node.target for node in graph.nodes if node.op == "call_function")
    return {str(target): count for target, count in targets.most_common()}


# ---------------------------------------------------------------- the files of an export


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
