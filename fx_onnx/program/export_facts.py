"""What an export decided, as data: the log collects it, the program keeps it, and the reports show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fx_onnx.messages.message_ids import Finding
from fx_onnx.sizes.dim_table import DimTable
from fx_onnx.targets.kernel_support import Support
from fx_onnx.targets.target import Target

if TYPE_CHECKING:
    from fx_onnx.report.graph_facts import GraphFacts
    from fx_onnx.verification.tensor_comparison import Difference
    from fx_onnx.verification.verification_result import Verification

__all__ = ["Facts", "ModelSummary", "PassOutcome", "StageOutcome", "TranslatedOperator"]


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
class Facts:
    """The content of a report. A fact is None if the export did not reach it.

    Attributes:
        stages: all stages, in order; empty for a model that was read from a file.
        versions: package → version. Python and the platform are included.
        error: the error with its traceback and causes.
        message: the sentence of the error.
        call: the call of ``export()`` with the arguments that were given.
        model_name: the class of the exported module.
        target: the runtime that the model is for; None for a model that was read from a file.
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
    target: Target | None = None
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
