"""The facts of one export: what every report shows, as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fx_onnx.core.dim_table import DimTable
from fx_onnx.core.messages import Finding
from fx_onnx.program.report.graph_facts import GraphFacts
from fx_onnx.program.verification.tensor_comparison import Difference
from fx_onnx.program.verification.verification_result import Verification
from fx_onnx.targets.kernel_support import Support

__all__ = [
    "Facts",
    "ModelSummary",
    "PassOutcome",
    "StageOutcome",
    "TranslatedOperator",
    "Verdict",
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
        for sizes, outputs in (
            ("", self.verification.outputs if self.verification is not None else ()),
            *((f" at {each.sizes}", each.outputs) for each in (self.verification.sizes if self.verification else ())),
        ):
            yield from ((sizes, one) for one in outputs)
