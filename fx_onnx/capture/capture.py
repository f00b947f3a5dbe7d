"""Captures the model of a request as a torch.export.ExportedProgram, and reports what happened to each dynamic dim.

torch.export runs in non-strict mode first, which traces the forward as Python code. Where that fails, or specializes a
dim that was requested as dynamic, the capture is repeated by the rules in this file: from a larger example, or in
strict mode, which traces bytecode. ``Capture.decisions`` holds the decisions that led to the result.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind

from fx_onnx.capture import dynamic_dims
from fx_onnx.capture.captured import Captured, SizeFacts
from fx_onnx.capture.diagnostics import (
    explain_failure,
    failure_id,
    is_dim_conflict,
    silence_torch_export,
    summarize,
)
from fx_onnx.capture.dim_relations import dim_relations
from fx_onnx.capture.dim_summaries import dim_table
from fx_onnx.capture.dynamic_dims import SpecializedDim
from fx_onnx.capture.enlarged_examples import (
    Example,
    example_with_all_dims_enlarged,
    examples_without_small_axes,
    keeps_dynamic,
    original_example,
    separated_example,
    small_axes,
)
from fx_onnx.capture.example_marks import keep_marks
from fx_onnx.capture.export_flag import exporting
from fx_onnx.capture.forward_wrapper import wrap_forward
from fx_onnx.capture.patches.applied import Changes, patched_torch
from fx_onnx.capture.patches.data_conditions import is_condition, left_out_checks, stops_at_check
from fx_onnx.capture.patches.fake_quantize import freeze_fake_quantizers
from fx_onnx.capture.python_state import frozen_values
from fx_onnx.capture.repeated_captures import fixes_small_axes, larger_example_frees_parts
from fx_onnx.capture.request import Request
from fx_onnx.capture.size_constraints import dim_labels
from fx_onnx.capture.size_questions import size_questions
from fx_onnx.capture.torchscript.scripted_module import has_scripts, interpreted_submodules, numbers_became_buffers
from fx_onnx.capture.training_mode import has_mode, in_mode, mode_matters
from fx_onnx.core.autocast_off import autocast_disabled
from fx_onnx.core.dim_table import DimTable
from fx_onnx.core.errors import CaptureError, OnnxExporterError
from fx_onnx.core.events import EventSink, IgnoredEvents
from fx_onnx.core.findings import warn
from fx_onnx.core.messages import MessageId
from fx_onnx.core.metadata import call_line
from fx_onnx.core.threads import CAPTURE_LOCK
from fx_onnx.core.torch_private import FakeTensor, pytree, size_oblivious

_logger = logging.getLogger("fx_onnx.stages")

_NUMBERS_IN_STRICT_MODE = (
    "repeated in strict mode, because non-strict mode restricts a dynamic dim where the forward converts a size to a "
    "Python number"
)


@dataclass(frozen=True)
class Capture:
    """The captured program.

    Attributes:
        exported_program: The program as torch.export returns it, not decomposed.
        symbol_names: The user's name for each dynamic dim, by the dim's expression as torch prints it (`s17`, `2*s17`).
        dim_labels: A label for the symbol of each dynamic dim: the user's name, or `input.shape[axis]`.
        specialized: The dims that were requested as dynamic but are static in the program.
        strategy: How the program was captured: `given`, `torch.export(strict=False)` or `torch.export(strict=True)`.
        decisions: One phrase for each way in which the capture differs from a single non-strict capture of the
            example.
        dims: What became of each dynamic dim.
    """

    exported_program: ExportedProgram
    symbol_names: Mapping[str, str]
    dim_labels: Mapping[str, str]
    specialized: tuple[SpecializedDim, ...]
    strategy: str
    decisions: tuple[str, ...] = ()
    dims: DimTable = field(default_factory=DimTable)


def capture(request: Request, events: EventSink | None = None) -> Capture:
    """Captures the model of a request; uses an ExportedProgram as it is.

    Warns (OnnxExporterWarning) about a module in training mode if no mode was requested and the mode may matter, about
    each dim requested as dynamic that is static or restricted to some sizes, and about dims that the model relates to
    each other.

    Args:
        request: What to capture.
        events: Receives ``Capture.decisions``.

    Raises:
        CaptureError: torch.export failed. The error's cause is the first error of torch.export.
    """
    events = events or IgnoredEvents()
    if isinstance(request.model, ExportedProgram):
        facts = SizeFacts(request, request.model)
        result = Captured(request.model, False, facts, ("skipped: the model is an ExportedProgram",))
        strategy = "given"
    else:
        in_training = request.model.training and has_mode(request.model) and mode_matters(request.model)
        if in_training and request.training is None:
            warn(
                f"{type(request.model).__name__} is in training mode; call model.eval() before the export "
                "unless you want to export training mode.",
                MessageId.TRAINING_MODE,
            )
        in_wanted_mode = in_mode(request.model, request.training)
        interpreted = interpreted_submodules(request.model)
        marks = keep_marks((request.args, request.kwargs))
        with CAPTURE_LOCK, in_wanted_mode, freeze_fake_quantizers(request.model), interpreted, marks:
            result = _capture_module(request, request.model, events)
        strategy = f"torch.export(strict={result.strict})"
    for decision in result.decisions:
        events.decided("capture", decision)
    program = result.program
    inputs, constraints = result.facts.inputs, result.facts.constraints
    specialized = tuple(dynamic_dims.specialized_dims(inputs, strategy == "given"))
    labels = dim_labels(program, inputs)
    excluded = result.facts.excluded_sizes()
    names, conflicts = dynamic_dims.symbol_names(inputs, strategy == "given")
    questions = size_questions(request.model) if labels and not result.strict else ()
    texts = {
        MessageId.DIM_NAME: conflicts,
        MessageId.RELATED_DIMS: dim_relations(inputs, labels),
        MessageId.STATIC_DIM: map(str, specialized),
        MessageId.SIZE_CONDITION: [*map(str, constraints), *questions],
        MessageId.EXCLUDED_SIZE: (each.describe(labels) for each in excluded),
        MessageId.EXCEPTION_ON_DATA: left_out_checks(program, result.left_out),
        MessageId.PYTHON_STATE: frozen_values(request, result.changed_values),
    }
    for id, found in texts.items():
        for text in found:
            warn(text, id)
    dims = dim_table(program, inputs, names, labels, specialized, constraints, excluded, result.facts.work_for)
    return Capture(program, names, labels, specialized, strategy, result.decisions, dims)


# --- the order of attempts --------------------------------------------------------------------------------------------


def _capture_module(request: Request, model: torch.nn.Module, events: EventSink) -> Captured:
    """Captures in non-strict mode, then in strict mode if that can help; then tries to free restricted dims."""
    captured = first = _capture_from_examples(request, model, strict=False)
    if isinstance(first, Exception) and _strict_mode_may_help(model, first):
        captured = _capture_from_examples(request, model, strict=True)
    if isinstance(captured, Captured):
        _refuse_lost_tensors(request, captured.program)
        captured = _with_fewest_restrictions(request, model, captured)
        if isinstance(first, Exception):
            captured = captured.because(f"repeated in strict mode, because non-strict mode raised {summarize(first)}")
        captured.program.example_inputs = (request.args, request.kwargs)
        return captured
    if captured is not first:
        events.decided("capture", f"failed in strict mode too: {summarize(captured)}")
    error = first if isinstance(first, Exception) else captured
    raise CaptureError(explain_failure(model, error, bool(request.float_leaves)), id=failure_id(error)) from error


def _refuse_lost_tensors(request: Request, program: ExportedProgram) -> None:
    """Raises a CaptureError if torch made a constant of a tensor that it traced, because a constant has no values then.

    A module or arguments that are fake have fake constants of their own, which are the caller's wish.
    """
    lost = _lost_tensor(request, program)
    if lost is not None:
        place = next((call_line(user) for user in lost.users), "")
        raise CaptureError(
            f"torch.export could not capture {type(request.model).__name__}: it made a constant of a tensor that "
            f"has no values during capture{place}; use detach() instead of Tensor.data there.",
            id=MessageId.TENSOR_WITHOUT_VALUES,
        )


def _lost_tensor(request: Request, program: ExportedProgram) -> torch.fx.Node | None:
    """Returns the placeholder of a constant without values."""
    given = pytree.tree_leaves((request.args, request.kwargs, list(program.state_dict.values())))
    if any(isinstance(leaf, FakeTensor) for leaf in given):
        return None
    placeholders: dict[str, torch.fx.Node] = {n.name: n for n in program.graph.find_nodes(op="placeholder")}
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.CONSTANT_TENSOR and isinstance(program.constants.get(spec.target), FakeTensor):
            return placeholders[spec.arg.name]
    return None


def _lacks_traced_tensor(request: Request, outcome: Captured | Exception) -> bool:
    """Returns whether torch.export made a constant of a tensor that it should have traced."""
    if isinstance(outcome, Exception):
        return "fake tensor in the exported program constant's list" in str(outcome)
    return _lost_tensor(request, outcome.program) is not None


def _with_fewest_restrictions(request: Request, model: torch.nn.Module, captured: Captured) -> Captured:
    """Captures again where another example or strict mode may restrict dynamic dims less than ``captured`` does.

    A slice of the example may have size 1 by chance: `x[2:]` of 3 rows has 1 row. All dynamic dims are then enlarged,
    if the guards tell that this frees the slice.
    Where the forward converts sizes to Python numbers, as in `int(0.7 * len(x))`, strict mode keeps them symbolic.
    """
    found = captured.facts.restrictions
    if found.count and larger_example_frees_parts(request, captured.facts.inputs):
        other = _attempt(request, model, example_with_all_dims_enlarged(request), captured.strict)
        if isinstance(other, Captured) and other.facts.hold_for_example():
            captured = min(captured, other, key=lambda each: each.facts.restrictions.count)
            found = captured.facts.restrictions
    if _reads_python_numbers(model, captured):
        other = _attempt(request, model, original_example(request), strict=True)
        if isinstance(other, Captured) and other.facts.restrictions.count < found.count:
            return other.because(_NUMBERS_IN_STRICT_MODE)
    return captured


def _capture_from_examples(request: Request, model: torch.nn.Module, strict: bool) -> Captured | Exception:
    """Returns the first capture that keeps dims of size 0 and 1 dynamic, or else the capture of the user's example.

    A capture that completes tells what to change, so that no more than one more capture completes in most cases.
    """
    small = small_axes(request)

    def is_right(outcome: Captured | Exception) -> bool:
        return (
            isinstance(outcome, Captured)
            and keeps_dynamic(request, outcome.program, small)
            and not outcome.facts.exclude_example()
        )

    for example in examples_without_small_axes(request, small) if small else ():
        captured = _attempt(request, model, example, strict)
        if is_right(captured):
            return captured
        if isinstance(captured, Captured):
            if _reads_python_numbers(model, captured):
                other = _attempt(request, model, example, strict=True)
                if isinstance(other, Captured) and is_right(other):
                    return other.because(_NUMBERS_IN_STRICT_MODE)
                break
            if fixes_small_axes(captured, small):
                break
    return _attempt(request, model, original_example(request), strict)


def _reads_python_numbers(model: torch.nn.Module, captured: Captured) -> bool:
    """Returns whether the forward converts a size to a Python number, which strict mode keeps symbolic."""
    numbers = captured.facts.restrictions.come_from_python_numbers
    return numbers and not captured.strict and not has_scripts(model)


def _strict_mode_may_help(model: torch.nn.Module, error: Exception) -> bool:
    """Returns False for errors that do not depend on the mode: the forward's own errors and conflicts of dims.

    Strict mode would trace the interpreter of TorchScript, not the model. A condition on data fails in strict mode too,
    and one whose bool is compared, as in ``bool(x.sum() > 0) is True``, would be false for all data.
    """
    if has_scripts(model) or is_condition(error):
        return False
    own = (LookupError, AttributeError, NameError, AssertionError, ImportError, ArithmeticError)
    return not isinstance(error, own) and not is_dim_conflict(str(error))


# --- one attempt ------------------------------------------------------------------------------------------------------


def _attempt(request: Request, model: torch.nn.Module, example: Example, strict: bool) -> Captured | Exception:
    """Captures from one example; returns the error if torch.export fails, so that the caller can choose what to do.

    If the model contradicts a Dim, the capture is repeated with every Dim as Dim.AUTO. If the forward returns a class
    that torch.export does not know, the capture is repeated with this class registered. If the forward computes
    gradients of values that torch.export does not see, the capture is repeated with these values recorded. If it raises
    an exception where a condition on data holds, the capture is repeated without these exceptions.
    """
    decisions = [example.decision] if example.decision else []
    dynamic_shapes, auto_dims, register_outputs, changes = request.dynamic_shapes, False, False, Changes()
    while True:
        reason = decisions[-1] if decisions else "the example of the call"
        _logger.debug("torch.export.export(strict=%s): %s", strict, reason)
        outcome = _export(request, model, example, dynamic_shapes, strict, changes, register_outputs)
        if _lacks_traced_tensor(request, outcome) and not (strict or changes.with_backward):
            changes = replace(changes, with_backward=True)
            decisions.append("repeated with intermediate values, because torch.export made a constant of a traced one")
        elif isinstance(outcome, Captured):
            return replace(outcome, decisions=tuple(decisions))
        elif numbers_became_buffers(model):
            decisions.append("repeated with the numbers that the TorchScript model changes as buffers")
        elif "Suggested fixes:" in str(outcome) and not auto_dims:
            dynamic_shapes, auto_dims = _with_auto_dims(request.dynamic_shapes), True
            decisions.append("repeated with Dim.AUTO for each Dim, because the model contradicts the requested Dims")
        elif "in output, which is not a known type" in str(outcome) and not register_outputs:
            register_outputs = True
            decisions.append(
                "repeated with the classes of the outputs registered, because torch.export did not know them"
            )
        elif stops_at_check(outcome) and not (strict or changes.without_checks):
            changes = replace(changes, without_checks=True)
            decisions.append("repeated without the exceptions that the forward raises if a condition on data holds")
        else:
            return outcome


def _export(
    request: Request,
    model: torch.nn.Module,
    example: Example,
    dynamic_shapes: Any,
    strict: bool,
    changes: Changes,
    register_outputs: bool,
) -> Captured | Exception:
    """Calls torch.export once, under all patches; returns the error if it fails."""
    example = separated_example(example, model)
    try:
        with (
            CAPTURE_LOCK,
            exporting(),
            silence_torch_export(),
            _treat_0_and_1_like_other_sizes(example.size_oblivious),
            patched_torch(model, strict, changes) as record,
            autocast_disabled() as caller_autocast,
            wrap_forward(
                model,
                example.kwargs,
                request.inputs,
                caller_autocast,
                float_leaves=request.float_leaves,
                register_outputs=register_outputs,
            ),
        ):
            program = torch.export.export(
                model, example.args, example.kwargs, dynamic_shapes=dynamic_shapes, strict=strict
            )
            facts = SizeFacts(request, program, record.comparisons)
            left_out = tuple(record.conditions.left_out)
            return Captured(program, strict, facts, (), tuple(record.changed_values), left_out)
    except OnnxExporterError:  # the forward calls export()
        raise
    except Exception as error:  # the forward is the user's code and may raise anything
        return error


def _with_auto_dims(dynamic_shapes: Any) -> Any:
    """Replaces each Dim by Dim.AUTO, so that torch infers the range, relation or constant that it suggested."""
    return pytree.tree_map_only(Dim, lambda _: Dim.AUTO, dynamic_shapes)


def _treat_0_and_1_like_other_sizes(enabled: bool) -> AbstractContextManager[Any]:
    """Makes torch keep dims of example size 0 and 1 symbolic, if ``enabled``.

    With this switch torch guesses the outcome of a branch on the size, so it is the last choice. For example, the
    result of a TransformerEncoderLayer with batch 1 then has a static batch of 1.
    """
    return size_oblivious() if enabled else nullcontext()
