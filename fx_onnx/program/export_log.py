"""What one export did: the stages with their times, and the facts that its report is made of."""

from __future__ import annotations

import cProfile
import inspect
import io
import os
import platform
import pstats
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.fx

from fx_onnx.aten.functionalize import AtenProgram
from fx_onnx.capture.capture import Capture
from fx_onnx.core.translation_table import Table
from fx_onnx.program import report
from fx_onnx.program.onnx_program import ONNXProgram
from fx_onnx.program.verify import Verification

STAGES = ("capture", "functionalize", "decompose", "translate", "optimize", "verify", "save")


@dataclass
class ExportLog:
    """Filled in while an export runs; formatting it into a report is report.py's.

    Attributes:
        verbose: whether each stage is announced as it ends.
        seconds: time by stage, for the stages that ended.
        failed: the stage that raised.
        notes: what to say of a stage besides its time, such as why it was skipped.
    """

    verbose: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    failed: str | None = None
    notes: dict[str, str] = field(default_factory=dict)
    captured: Capture | None = None
    operators_before: Mapping[str, int] | None = None
    decomposed: AtenProgram | None = None
    table: Table | None = None
    program: ONNXProgram | None = None
    verification: Verification | None = None
    profile: cProfile.Profile | None = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times a stage, and notes whether it ended well."""
        begin = time.perf_counter()
        try:
            yield
        except BaseException:
            self.failed = name
            raise
        finally:
            self.seconds[name] = time.perf_counter() - begin
        if self.verbose:
            print_line(f"{name}: {self.seconds[name]:.2f} s")

    def facts(self, error: BaseException | None = None) -> report.Facts:
        """All that is known so far, in the form that the report prints."""
        exported = self.captured.exported_program if self.captured is not None else None
        before, after = self.operators_before, None
        if self.decomposed is not None:
            after = count_operators(self.decomposed.graph)
        return report.Facts(
            stages=[
                report.Stage(name, self.seconds.get(name), self._outcome(name), self.notes.get(name, ""))
                for name in STAGES
            ],
            versions=_versions(),
            error="".join(traceback.format_exception(error)) if error is not None else None,
            exported_program=str(exported) if exported is not None else None,
            operators_before=before,
            operators_after=after,
            translations=self._translations(),
            model=self.program.summary() if self.program is not None else None,
            dynamic_dims=_dynamic_dims(self.captured) if self.captured is not None else None,
            verification=self.verification,
            profile=self.profile_text(),
        )

    def write(self, folder: str | os.PathLike[str], error: BaseException | None = None) -> Path:
        """Writes the Markdown report into ``folder``."""
        path = report.write(self.facts(error), folder)
        if self.verbose:
            print_line(f"report: {path}")
        return path

    def profile_text(self) -> str | None:
        """The functions that took the most time, where the export was profiled."""
        if self.profile is None:
            return None
        text = io.StringIO()
        pstats.Stats(self.profile, stream=text).sort_stats("cumulative").print_stats(60)
        return text.getvalue()

    def _outcome(self, name: str) -> bool | None:
        return None if name not in self.seconds else name != self.failed

    def _translations(self) -> list[report.Translation] | None:
        if self.decomposed is None or self.table is None:
            return None
        targets = Counter(n.target for n in self.decomposed.graph.nodes if n.op == "call_function")
        return [
            report.Translation(str(target), *_place(self.table[target].function), count)
            for target, count in targets.items()
            if target in self.table
        ]


def print_line(text: str) -> None:
    """One line on the console, in plain characters that every console has."""
    os.write(1, f"[fx_onnx] {text}\n".encode("ascii", "replace"))


def count_operators(graph: torch.fx.Graph) -> dict[str, int]:
    """Number of FX nodes by target, most frequent first."""
    targets = Counter(str(node.target) for node in graph.nodes if node.op == "call_function")
    return dict(targets.most_common())


def _place(function: Any) -> tuple[str, str]:
    """The name and the file:line of a translation."""
    function = inspect.unwrap(getattr(function, "func", function))
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", repr(function))
    return name, f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def _versions() -> dict[str, str]:
    packages = ("torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "numpy")
    return {
        "fx_onnx": version("fx-onnx"),
        **{package: version(package) for package in packages},
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def _dynamic_dims(captured: Capture) -> list[report.DynamicDim]:
    """Every symbol of the program with its range, then every dim that was asked for and came out static."""
    ranges = captured.exported_program.range_constraints
    places: dict[str, list[str]] = {}
    for node in captured.exported_program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if not isinstance(size, int):
                places.setdefault(str(size), []).append(f"{node.name}[{axis}]")
    dims = [
        report.DynamicDim(captured.symbol_names.get(name, name), ", ".join(places.get(name, ())), str(limits))
        for name, limits in ((str(symbol), limits) for symbol, limits in ranges.items())
    ]
    static = [
        report.DynamicDim(each.name or "", f"{each.input}[{each.axis}]", "", str(each)) for each in captured.specialized
    ]
    return dims + static
