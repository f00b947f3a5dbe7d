"""The facts of one export: what every report shows, as data."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version as package_version
from pathlib import Path
from typing import TYPE_CHECKING

from torch.export import ExportedProgram

from fx_onnx.backends.kernel_support import Support, support
from fx_onnx.files.serialization import referenced_files
from fx_onnx.messages.errors import OnnxExporterError
from fx_onnx.messages.message_ids import Finding
from fx_onnx.report.graph_facts import GraphFacts, graph_facts
from fx_onnx.sizes.dim_table import DimTable
from fx_onnx.targets.known_targets import NAMES, find_target
from fx_onnx.torch_internals.version import version
from fx_onnx.verification.tensor_comparison import Difference
from fx_onnx.verification.verification_result import Verification

if TYPE_CHECKING:
    from fx_onnx.program.onnx_program import ONNXProgram

__all__ = [
    "Facts",
    "ModelSummary",
    "PassOutcome",
    "StageOutcome",
    "TranslatedOperator",
    "Verdict",
    "gather",
    "gather_head",
]


@dataclass(frozen=True)
class StageOutcome:
    """One stage of the export.

    Attributes:
        name: the name of the stage, for example ``capture``. The file name of the report of a failure contains it.
        seconds: how long it took; None if it was not reached or was skipped.
        ok: whether it succeeded; None if it was not reached or was skipped.
        note: what it decided, for example ``skipped: verify=False``.
    """

    name: str
    seconds: float | None = None
    ok: bool | None = None
    note: str = ""


@dataclass(frozen=True)
class TranslatedOperator:
    """One operator of the decomposed program and its translation.

    Attributes:
        operator: the ATen overload, for example ``aten.add.Tensor``.
        function: the name of the translation function.
        place: the file and line of the function; empty for a built-in function.
        count: how many FX nodes call the operator.
    """

    operator: str
    function: str
    place: str
    count: int


@dataclass(frozen=True)
class ModelSummary:
    """The figures of an ONNX model.

    Attributes:
        opset: domain → opset version.
        inputs: each input as text, for example ``x: float[batch, 8]``.
        outputs: each output as text.
        operators: operator type → number of nodes, including subgraphs.
        parameters: the number of elements of all initializers.
        parameter_bytes: the size of all initializers in bytes.
        dtypes: element type → number of elements. It shows whether a model is quantized.
    """

    opset: Mapping[str, int]
    inputs: Sequence[str]
    outputs: Sequence[str]
    operators: Mapping[str, int]
    parameters: int
    parameter_bytes: int
    dtypes: Mapping[str, int]


@dataclass(frozen=True)
class PassOutcome:
    """What one pass changed.

    Consecutive passes share one walk over the graph. So the numbers of nodes are a running sum in the order of the
    passes: each pass begins where the pass before it ends.

    Attributes:
        name: the name of the pass.
        stage: the stage that ran it, ``optimize`` or ``legalize``.
        applied: how often it changed the graph; for a pass that visits the graph as a whole, 1.
        before: the number of nodes before it.
        after: the number of nodes after it.
        switch: what leaves it out, for example ``optimize={'fuse_gelu'}``; empty if the target or the opset needs it.
    """

    name: str
    stage: str
    applied: int
    before: int
    after: int
    switch: str = ""


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


@dataclass(frozen=True)
class Facts:
    """The content of a report. A fact is None if the export did not reach it.

    Attributes:
        stages: all stages, in order; empty for a model that was read from a file.
        versions: package → version. Python and the platform are included.
        error: the error with its traceback and causes.
        message: the sentence of the error.
        call: the call of ``export()`` with the arguments that were given.
        model_name: the class of the exported module.
        files: the file of the model and the file of its weights, each with its size in bytes.
        exported_program: the captured program as text.
        operators_before: operator → number of FX nodes after capture.
        operators_after: operator → number of FX nodes after decomposition.
        translated_operators: the operators of the decomposed program with their translations.
        model: the figures of the model, as the last stage that ran left it.
        graphs: the main graph and the local functions of the model.
        dims: what became of each dynamic dim.
        findings: what the user should know, with the id of each.
        passes: the passes that changed the graph, in order.
        verification: the comparison of the outputs.
        values: the differences of the values inside the model, each computed from right inputs.
        module_seconds: the path of a module → the time that torch.export spent in its forward, inner modules included.
        profile: the output of the profiler.
        support: for each target with a table, the nodes for which the runtime has kernels.
    """

    stages: Sequence[StageOutcome] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    message: str = ""
    call: str = ""
    model_name: str = ""
    files: Mapping[str, int] = field(default_factory=dict)
    exported_program: str | None = None
    operators_before: Mapping[str, int] | None = None
    operators_after: Mapping[str, int] | None = None
    translated_operators: Sequence[TranslatedOperator] | None = None
    model: ModelSummary | None = None
    graphs: Sequence[GraphFacts] = ()
    dims: DimTable | None = None
    findings: Sequence[Finding] = ()
    passes: Sequence[PassOutcome] = ()
    verification: Verification | None = None
    values: Sequence[Difference] = ()
    module_seconds: Mapping[str, float] = field(default_factory=dict)
    profile: str | None = None
    support: Sequence[Support] | None = None

    @property
    def failed_stage(self) -> str:
        """The stage that failed; empty if none did."""
        return next((stage.name for stage in self.stages if stage.ok is False), "")

    @property
    def seconds(self) -> float:
        """The time of all stages."""
        return sum(stage.seconds or 0.0 for stage in self.stages)

    def verdict(self) -> Verdict:
        """Returns the result in one sentence, and what else a reader must know."""
        details = [str(finding) for finding in self.findings]
        if self.error is not None or self.failed_stage:
            where = f" in the stage {self.failed_stage}" if self.failed_stage else ""
            return Verdict("failed", f"The export failed{where}.", (self.message, *details))
        if not self.stages:
            return Verdict("read", "The model was read from a file.")
        found = self.verification
        if found is None:
            return Verdict(
                "unverified", "Exported. The results were not compared with those of the module.", (*details,)
            )
        if not found.ok:
            cause = (found.cause.text,) if found.cause is not None else ()
            bad = [f"{one.name}{sizes}: {one.problem}" for sizes, one in self.compared() if not one.ok]
            bad += [f"{each.sizes}: {each.problem}" for each in found.sizes if each.problem]
            title = "Exported, but the results differ from those of the module."
            return Verdict("failed", title, (*cause, *bad, *details))
        largest = f"The largest difference is {found.max_rel:.2g} of the largest magnitude of its output."
        number = len(found.outputs)
        outputs = {1: "The output agrees", 2: "Both outputs agree"}.get(number, f"All {number} outputs agree")
        sizes = "".join(f" It also agrees at {each.sizes}." for each in found.sizes)
        details = [largest + sizes, *found.remarks, *details]
        return Verdict("passed", f"Exported and verified. {outputs} with the module.", tuple(details))

    def compared(self) -> Iterator[tuple[str, Difference]]:
        """Yields the compared outputs: first with the given arguments, then with other sizes, which the text names."""
        for run in self.verification.runs if self.verification is not None else ():
            yield from ((f" at {run.sizes}" if run.sizes else "", one) for one in run.outputs)


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
