"""The export pipeline: one tuple of named stages, from a request to an ONNXProgram.

``STAGES`` is the pipeline. ``run`` executes its stages in order. The log, ``ONNXProgram.timings`` and the report take
their stage names from the same tuple. Each stage takes the job that the stage before it returned, calls the public
function that does the work, and returns the job with the result. The type of the job shows how far the export has come:
``Job`` → ``CapturedJob`` → ``AtenJob`` → ``OnnxJob``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import onnx_ir as ir
import torch

import fx_onnx.translations  # noqa: F401  registers the translations
from fx_onnx.aten.aten_program import AtenProgram, lower_vmap
from fx_onnx.aten.autocast import lower_autocast
from fx_onnx.aten.constant_folding import fold_constants
from fx_onnx.aten.decompose import decompose
from fx_onnx.aten.flex_attention import lower_flex_attention
from fx_onnx.aten.functionalize import functionalize
from fx_onnx.aten.fx_nodes import makes_complex
from fx_onnx.capture.callers_precision import autocast_disabled
from fx_onnx.capture.capture import Capture, capture
from fx_onnx.capture.diagnostics import redirect_torch_warnings
from fx_onnx.capture.eager_model import eager_model
from fx_onnx.capture.export_flag import is_in_onnx_export
from fx_onnx.capture.patches.module_hooks import measure_modules
from fx_onnx.capture.proof.dim_relations import describe_relation
from fx_onnx.extension_points.rooms import find
from fx_onnx.extension_points.translation_table import TranslationTable, translation_table
from fx_onnx.files.serialization import add_doc_strings, graph_text
from fx_onnx.messages.errors import CaptureError, VerificationError, no_effect
from fx_onnx.messages.findings import current_findings, warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model import metadata, opsets
from fx_onnx.onnx_model.weights import is_subclass
from fx_onnx.passes.cleanup.constant_evaluation import EvaluateConstants
from fx_onnx.passes.cleanup.redundant_nodes import EliminateCommonSubexpressions
from fx_onnx.passes.cleanup.stored_weights import (
    fold_weight_selections,
    fold_weight_transposes,
    transpose_shared_weights,
)
from fx_onnx.passes.legalization.legalize import legalize
from fx_onnx.passes.optimize import keep_weights, name_folded_weights, passes_without
from fx_onnx.passes.rewriter import apply
from fx_onnx.program.export_log import ExportLog, print_text
from fx_onnx.program.export_options import ExportOptions
from fx_onnx.program.onnx_program import ONNXProgram
from fx_onnx.program.progress_bar import progress_bar
from fx_onnx.requests.request import Request
from fx_onnx.sizes.dim_table import DimTable
from fx_onnx.targets import onnxruntime
from fx_onnx.targets.kernel_support import support
from fx_onnx.targets.target import Target
from fx_onnx.torch_internals.garbage import no_collection
from fx_onnx.torch_internals.threads import CAPTURE_LOCK
from fx_onnx.torch_internals.torch_logs import redirect_torch_logs
from fx_onnx.torch_internals.torch_private import unset_fake_temporarily
from fx_onnx.torch_internals.trace_private import left_transforms_undone
from fx_onnx.translation import io_names
from fx_onnx.translation.own_translations import OwnTranslations
from fx_onnx.translation.translate import translate
from fx_onnx.translation.translation_origins import TranslationOrigins
from fx_onnx.translations.training_forms import TRAINING_FORMS

__all__ = ["STAGES", "AtenJob", "CapturedJob", "Job", "OnnxJob", "Stage", "run"]

# ---------------------------------------------------------------- jobs: the data that stages pass on


@dataclass(frozen=True)
class Job:
    """One export before capture: what to export, how, and the log that receives decisions and facts."""

    request: Request
    options: ExportOptions
    log: ExportLog


@dataclass(frozen=True)
class CapturedJob(Job):
    """One export after capture.

    Attributes:
        captured: the ExportedProgram and the facts about its dynamic dims.
        table: the translations of the native opset, with the user's translations.
        own: the user's translations.
    """

    captured: Capture
    table: TranslationTable
    own: OwnTranslations


@dataclass(frozen=True)
class AtenJob(CapturedJob):
    """One export while its program is an FX graph of ATen operators; the stages rewrite ``aten``."""

    aten: AtenProgram


@dataclass(frozen=True)
class OnnxJob(CapturedJob):
    """One export after translation; the stages rewrite ``program.model``."""

    program: ONNXProgram


# ---------------------------------------------------------------- the stages, in order


def _capture(job: Job) -> CapturedJob:
    table = translation_table(opsets.native(job.options.opset))
    if job.request.keeps_training_forms:
        table = table.extended(TRAINING_FORMS)
    if job.options.target is not None:
        table = table.extended(job.options.target.translations)
    own = OwnTranslations(job.options, table)
    table = own.extended(table)
    if job.options.operator_export_type:
        table = table.with_fallback(find("translations", "operator_export_type")(job.options.operator_export_type))
    for note in own.room.notes() if own.room is not None else ():
        job.log.decided("capture", note)
    quiet = nullcontext() if job.log.verbose else redirect_torch_warnings()
    timed = measure_modules() if job.log.detailed else nullcontext(job.log.module_seconds)
    with CAPTURE_LOCK, quiet, timed as job.log.module_seconds, own.traced():
        captured = capture(job.request, partial(job.log.decided, "capture"))
    job.log.captured = captured
    job.log.table = table if own.room is None else own.room.with_functions(captured.exported_program, table)
    return CapturedJob(job.request, job.options, job.log, captured, job.log.table, own)


def _lower_vmap(job: CapturedJob) -> AtenJob:
    with CAPTURE_LOCK:  # torch traces the graph again
        program = lower_vmap(AtenProgram.captured(job.captured.exported_program))
    return AtenJob(job.request, job.options, job.log, job.captured, job.table, job.own, program)


def _on_aten(rewrite: Callable[[AtenProgram], AtenProgram]) -> Callable[[AtenJob], AtenJob]:
    """Returns the stage that rewrites the ATen program of a job and needs nothing else of the job."""

    def run(job: AtenJob) -> AtenJob:
        return replace(job, aten=rewrite(job.aten))

    return run


def _branch_on_data_sizes(job: AtenJob) -> AtenJob:
    if not (sizes := job.captured.data_branches):
        return job
    return replace(job, aten=find("stages", "branch_on_data_sizes")(job.aten, sizes))


def _on_nodes(name: str, concerns: Callable[[torch.fx.Node], bool]) -> Callable[[AtenJob], AtenJob]:
    """Returns the stage of a room that rewrites the ATen program of a job, if it concerns a node of the program."""

    def run(job: AtenJob) -> AtenJob:
        if not any(concerns(node) for graph in job.aten.graphs for node in graph.nodes):
            return job
        return replace(job, aten=find("stages", name)(job.aten))

    return run


def _has_subclass(node: torch.fx.Node) -> bool:
    return node.op == "placeholder" and is_subclass(node.meta.get("val"))


def _decompose(job: AtenJob) -> AtenJob:
    room, captured = job.own.room, job.captured.exported_program
    program = decompose(job.aten, job.table, {} if room is None else room.computations(captured))
    job.log.decomposed = program
    if room is not None and (unused := room.unused(captured, program.graphs)):
        job.log.decided("decompose", unused)
    for relation, call in program.size_relations.items():
        message = describe_relation(relation, call, job.captured.dim_labels)
        job.log.decided("decompose", message)
        warn(message, MessageId.SIZE_CONDITION)
    return replace(job, aten=program)


def _translate(job: AtenJob) -> OnnxJob:
    model, custom = _model(job), job.options.custom_opsets
    if job.captured.conditions:
        models = [model, *(_model(_aten_job(job, other)) for other in job.captured.others)]
        model = find("stages", "merge_paths")([job.captured, *job.captured.others], models)
    for domain in custom.keys() - model.graph.opset_imports.keys():
        no_effect(f"custom_opsets[{domain!r}]", "no node of the model has this domain")
    job.log.program = ONNXProgram(model, job.captured.exported_program)
    job.log.program.dims = DimTable.joined([path.dims for path in (job.captured, *job.captured.others)])
    job.log.program._origins = TranslationOrigins.of(job.aten, job.table)
    if job.options.has_weights_as_inputs or job.request.keeps_training_forms:
        keep_weights(model)
    return OnnxJob(job.request, job.options, job.log, job.captured, job.table, job.own, job.log.program)


def _model(job: AtenJob) -> ir.Model:
    keeps_unread = not job.options.optimize
    names, custom = job.captured.symbol_names, job.options.custom_opsets
    return translate(job.aten, job.table, names, custom, keeps_unread=keeps_unread)


def _aten_job(job: CapturedJob, path: Capture) -> AtenJob:
    """Returns the job of another path, after the stages up to translation."""
    captured: Any = CapturedJob(job.request, job.options, job.log, path, job.table, job.own)
    names = [stage.name for stage in STAGES]
    for stage in STAGES[names.index("capture") + 1 : names.index("translate")]:
        if stage.applies(job.options):
            captured = stage.run(captured)
    job_of_path: AtenJob = captured
    return job_of_path


def _name_inputs_and_outputs(job: OnnxJob) -> OnnxJob:
    io_names.name_by_structure(job.program.model, job.captured.exported_program)
    io_names.name_inputs_and_outputs(job.program.model, job.request)
    return job


def _optimize(job: OnnxJob) -> OnnxJob:
    without: set[str] = set()
    if job.options.modules_as_functions:
        # Common subexpressions are eliminated after that stage. Otherwise one module would use a result that another
        # module computes.
        without |= {EliminateCommonSubexpressions.name, transpose_shared_weights.name}
    if not job.options.fold_constants:
        folding = (EvaluateConstants, fold_weight_selections, fold_weight_transposes, transpose_shared_weights)
        without |= {folded.name for folded in folding}
    passes = passes_without(without.union(job.options.without, _target(job).without))
    with job.log.changes("optimize", job.program, passes) as changes:
        job.program.model = name_folded_weights(apply(job.program.model, passes, changes))
    return job


def _rewrite(job: OnnxJob) -> OnnxJob:
    with job.log.changes("rewrite", job.program, job.options.rules) as changes:
        job.program.model = apply(job.program.model, job.options.rules, changes)
    return job


def _target(job: OnnxJob) -> Target:
    return job.options.target or onnxruntime.TARGET


def _legalize(job: OnnxJob) -> OnnxJob:
    target = _target(job)
    before = None if job.options.target is None else job.program.summary().operators
    passes = (*target.legalizations, *(target.fusions if job.options.target is not None else ()))
    with job.log.changes("legalize", job.program, passes) as changes:
        job.program.model = legalize(job.program.model, passes, changes)
    if before is not None:
        job.log.decided("legalize", f"target {target.name}: {_changes(before, job.program.summary().operators)}")
    return job


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Returns how the numbers of operators changed, for example ``Swish -1, Mul +1, Sigmoid +1``."""
    differences = {name: after.get(name, 0) - before.get(name, 0) for name in (*before, *after)}
    changed = [
        f"{name} {number:+d}" for name, number in sorted(differences.items(), key=lambda item: item[1]) if number
    ]
    return ", ".join(changed) or "no node changed"


def _convert_opset(job: OnnxJob) -> OnnxJob:
    job.program.model = find("stages", "convert_opset")(job.program.model, job.options.opset)
    return job


def _check_target(job: OnnxJob) -> OnnxJob:
    target = _target(job)
    known = support(job.program.model, target)
    if target.refuses:
        known.refuse_missing()
    for missing in known.missing:
        job.log.decided("check_target", str(missing))
    if target.check is not None:
        target.check(job.program.model)
    return job


def _modules_to_functions(job: OnnxJob) -> OnnxJob:
    left_inline = find("stages", "modules_to_functions")(job.program, job.options, job.request.model)
    if job.options.optimize and EliminateCommonSubexpressions.name not in job.options.without:
        job.program.model = EliminateCommonSubexpressions()(job.program.model).model
    if left_inline:
        job.log.decided("modules_to_functions", f"modules left inline: {', '.join(left_inline)}")
    return job


def _add_doc_strings(job: OnnxJob) -> OnnxJob:
    add_doc_strings(job.program.model)
    return job


def _verify(job: OnnxJob) -> OnnxJob:
    find("stages", "check")(job.program)
    if not job.options.verify:
        job.log.decided("verify", "checked, but not compared")
        return job
    request = job.request
    module = request.reference or eager_model(request)
    job.log.verification = find("stages", "verify")(job.program, request.args, request.kwargs, module=module)
    try:
        job.log.verification.check()
    except VerificationError as error:  # of a random layer, whose mode explains it
        mode = [finding.text for finding in current_findings() if finding.id is MessageId.TRAINING_MODE]
        raise VerificationError(" ".join([*mode, error.message])) from None
    return job


def _save(job: OnnxJob) -> OnnxJob:
    options = job.options
    if options.bare_declarations:
        job.program.model.meta[metadata.BARE_DECLARATIONS] = True
    if options.destination is not None:
        job.program.save(
            options.destination,
            include_initializers=options.include_initializers,
            keep_initializers_as_inputs=options.keep_initializers_as_inputs,
            external_data=options.external_data,
            metadata=options.metadata,
        )
    return job


def _always(options: ExportOptions) -> bool:
    return True


@dataclass(frozen=True)
class Stage:
    """One stage of the pipeline.

    Attributes:
        name: the name in the log, in ``ONNXProgram.timings``, in the report and in docs/architecture.md.
        run: takes the job that the stage before it returned, and returns the job for the next stage.
        applies: returns whether the stage runs with the given options.
        skip_reason: why the stage does not run, for the log; empty if it always runs.
        is_isolated: whether it runs with real tensors and without garbage collection. Stages that run the user's
            module, or write files, are not isolated.
    """

    name: str
    run: Callable[[Any], Job]
    applies: Callable[[ExportOptions], bool] = _always
    skip_reason: str = ""
    is_isolated: bool = True


STAGES: tuple[Stage, ...] = (
    Stage("capture", _capture, is_isolated=False),
    Stage("lower_vmap", _lower_vmap),
    Stage("lower_autocast", _on_aten(lower_autocast)),
    Stage("functionalize", _on_aten(functionalize)),
    Stage("branch_on_data_sizes", _branch_on_data_sizes),
    Stage("unwrap_tensor_subclasses", _on_nodes("unwrap_tensor_subclasses", _has_subclass)),
    Stage("lower_flex_attention", _on_aten(lower_flex_attention)),
    Stage(
        "fold_constants",
        _on_aten(fold_constants),
        lambda options: options.fold_constants,
        "do_constant_folding=False",
    ),
    Stage("lower_complex", _on_nodes("lower_complex", makes_complex)),
    Stage("decompose", _decompose),
    Stage("translate", _translate),
    Stage("name_inputs_and_outputs", _name_inputs_and_outputs),
    Stage("optimize", _optimize, lambda options: options.optimize, "optimize=False"),
    Stage("rewrite", _rewrite, lambda options: bool(options.rules), "no rules were given"),
    Stage("legalize", _legalize),
    Stage("convert_opset", _convert_opset, lambda options: not options.is_native, "the opset is native"),
    Stage("check_target", _check_target, lambda options: options.target is not None, "no target was given"),
    Stage(
        "modules_to_functions",
        _modules_to_functions,
        lambda options: bool(options.modules_as_functions),
        "export_modules_as_functions=False",
    ),
    Stage("add_doc_strings", _add_doc_strings, lambda options: options.doc_strings, "verbose=False"),
    Stage("verify", _verify, lambda options: options.verify or options.check, "verify=False", is_isolated=False),
    Stage("save", _save, lambda options: options.destination is not None, "f=None", is_isolated=False),
)
"""All stages, in order."""


# ---------------------------------------------------------------- running the stages


def run(request: Request, options: ExportOptions, log: ExportLog) -> ONNXProgram:
    """Runs all stages and returns the finished program.

    Args:
        request: what to export.
        options: how to export it.
        log: receives the time and the decisions of each stage, and the facts for the report.

    Raises:
        OnnxExporterError: a stage failed; ``log.failed`` names it.
        CaptureError: a forward that is being captured calls this function.
    """
    stages = {stage.name for stage in STAGES if stage.applies(options)}
    with nullcontext() if log.verbose else redirect_torch_logs(), progress_bar(log.progress, stages) as log.bar:
        program: ONNXProgram = run_until(STAGES[-1].name, request, options, log).program
    program.timings = dict(log.seconds)
    program.export_facts = replace(log.facts(), target=options.target or onnxruntime.TARGET)
    if log.verbose:
        print_text(graph_text(program.model))
    return program


@left_transforms_undone()
def run_until(last: str, request: Request, options: ExportOptions, log: ExportLog) -> Any:
    """Runs the stages up to the one named ``last`` and returns its job; see ``run`` for the other arguments."""
    if is_in_onnx_export():
        raise CaptureError(
            "export() was called while the same thread captures another model; do not call it in a forward that is "
            "being exported.",
            id=MessageId.NESTED_EXPORT,
        )
    log.stages = tuple(stage.name for stage in STAGES)
    job: Any = Job(request, options, log)
    until = log.stages.index(last) + 1
    for is_isolated, stages in itertools.groupby(STAGES[:until], key=lambda stage: stage.is_isolated):
        with _isolated() if is_isolated else nullcontext():
            for stage in stages:
                if stage.applies(options):
                    with log.stage(stage.name):
                        job = stage.run(job)
                else:
                    log.decided(stage.name, f"skipped: {stage.skip_reason}")
    return job


@contextmanager
def _isolated() -> Iterator[None]:
    """Runs the stages with real tensors and without garbage collection."""
    with _real_tensors(), no_collection():
        yield


@contextmanager
def _real_tensors() -> Iterator[None]:
    """Gives new tensors real values, even if the caller has enabled a FakeTensorMode, a default device or autocast."""
    device = torch.device("cpu") if torch.get_default_device().type != "cpu" else nullcontext()
    with unset_fake_temporarily(), device, autocast_disabled():
        yield
