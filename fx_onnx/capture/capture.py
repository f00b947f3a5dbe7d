"""Captures the model of a request as a torch.export.ExportedProgram, and reports what happened to each dynamic dim.

torch.export runs once, in non-strict mode, which traces the forward as Python code. It treats the size of a dynamic dim
as any size, so that examples of size 0 and 1 need no other capture. Where the first capture fails, fixes such a dim, or
truncates a size to a Python integer, it is repeated by the rules in this file. ``Capture.decisions`` holds the
decisions that led to the result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind

from fx_onnx.aten.shared_storages import share_storages
from fx_onnx.capture import dynamic_dims
from fx_onnx.capture.callers_precision import autocast_disabled, one_cudnn_precision
from fx_onnx.capture.captured import Captured, DataCondition
from fx_onnx.capture.diagnostics import (
    explain_failure,
    failure_id,
    is_broadcast_conflict,
    is_dim_conflict,
    is_of_gradients,
    summarize,
)
from fx_onnx.capture.dynamic_dims import SpecializedDim
from fx_onnx.capture.eager_model import frozen_quantizers, has_mode, in_mode, mode_matters, mode_of_this_thread
from fx_onnx.capture.examples import (
    Example,
    enlarged_examples,
    original_example,
    separated_example,
    small_axes,
    specializing_example,
)
from fx_onnx.capture.export_flag import exporting
from fx_onnx.capture.forward_wrapper import wrap_forward
from fx_onnx.capture.patches.applied import Changes, patched_torch
from fx_onnx.capture.patches.data_conditions import (
    UNDECIDED,
    current_path,
    is_condition,
    is_number,
    left_out_checks,
    raise_handled,
)
from fx_onnx.capture.proof.data_sizes import data_sizes
from fx_onnx.capture.proof.dim_relations import dim_relations
from fx_onnx.capture.proof.dim_summaries import dim_table
from fx_onnx.capture.proof.paired_runs import PairedRuns
from fx_onnx.capture.proof.size_proof import SizeProof
from fx_onnx.capture.proof.size_words import message_id, sentence
from fx_onnx.capture.python_state import compares_identity
from fx_onnx.capture.state_calls import dependent_values
from fx_onnx.extension_points.rooms import find, is_installed
from fx_onnx.messages.errors import CaptureError, OnnxExporterError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model.metadata import call_line
from fx_onnx.requests.request import Request
from fx_onnx.requests.scripts import has_scripts, interpreted_submodules, numbers_became_buffers
from fx_onnx.sizes.dim_table import DimTable
from fx_onnx.torch_internals.dynamo_private import keep_marks
from fx_onnx.torch_internals.guard_private import is_from_file
from fx_onnx.torch_internals.threads import CAPTURE_LOCK
from fx_onnx.torch_internals.torch_private import FakeTensor, pytree, size_oblivious

_logger = logging.getLogger("fx_onnx.stages")

Decided = Callable[[str], None]
"""Receives what the capture decided, in a few words, such as ``captured in strict mode``."""

_BRANCHES = "data_branches"
_WRONG_AT_EXAMPLE = (
    "The exported model is wrong at the sizes of the example too, because the code computes something else than while "
    "torch traces, when a size is no int"
)
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
        data_branches: The sizes for which the program may need a branch where a size depends on data.
        conditions: The conditions on data on the path of the program, in order.
        others: The captures of the other paths.
    """

    exported_program: ExportedProgram
    symbol_names: Mapping[str, str]
    dim_labels: Mapping[str, str]
    specialized: tuple[SpecializedDim, ...]
    strategy: str
    decisions: tuple[str, ...] = ()
    dims: DimTable = field(default_factory=DimTable)
    data_branches: tuple[int, ...] = ()
    conditions: tuple[DataCondition, ...] = ()
    others: tuple[Capture, ...] = ()


def capture(request: Request, decided: Decided = lambda text: None) -> Capture:
    """Captures the model of a request; uses an ExportedProgram as it is.

    Warns (OnnxExporterWarning) about a module in training mode if no mode was requested and the mode may matter, about
    each dim requested as dynamic that is static or restricted to some sizes, and about dims that the model relates to
    each other.

    Args:
        request: What to capture.
        decided: Receives each of ``Capture.decisions``.

    Raises:
        CaptureError: torch.export failed. The error's cause is the first error of torch.export.
    """
    if isinstance(request.model, ExportedProgram):
        results = [_of_program(request, request.model)]
    else:
        in_training = request.model.training and has_mode(request.model) and mode_matters(request.model)
        if in_training and request.training is None:
            warn(
                f"{type(request.model).__name__} is in training mode; call model.eval() before the export "
                "unless you want to export training mode.",
                MessageId.TRAINING_MODE,
            )
        in_wanted_mode = in_mode(request.model, request.training, mode_of_this_thread())
        interpreted = interpreted_submodules(request.model)
        marks = keep_marks((request.args, request.kwargs))
        with CAPTURE_LOCK, interpreted, in_wanted_mode, frozen_quantizers(request.model), marks:
            results = list(_capture_paths(request, request.model, decided))
    for decision in dict.fromkeys(decision for result in results for decision in result.decisions):
        decided(decision)
    first, *others = (_checked(request, result) for result in results)
    return replace(first, others=tuple(others))


def _checked(request: Request, result: Captured) -> Capture:
    """Returns a capture of a request, and warns of what became of its dims and of what its results depend on."""
    program, facts = result.program, result.facts
    is_given = isinstance(request.model, ExportedProgram)
    strategy = "given" if is_given else f"torch.export(strict={result.strict})"
    specialized = tuple(dynamic_dims.specialized_dims(facts.sizes.inputs, is_given, facts.raising_axes))
    names, conflicts = dynamic_dims.symbol_names(facts.sizes.inputs, is_given)
    sentences: dict[MessageId, list[str]] = {}
    for condition in facts.conditions:
        if condition.kind == "finding":
            sentences.setdefault(message_id(condition), []).append(sentence(condition, facts.sizes))
    texts: dict[MessageId, Iterable[str]] = {
        MessageId.DIM_NAME: conflicts,
        MessageId.RELATED_DIMS: [*map(str, result.relations), *sentences.get(MessageId.RELATED_DIMS, ())],
        MessageId.STATIC_DIM: map(str, specialized),
        MessageId.SIZE_CONDITION: [
            *sentences.get(MessageId.SIZE_CONDITION, ()),
            *facts.sizes.narrowed(),
            *([] if facts.other_line is None else [f"{_WRONG_AT_EXAMPLE} {facts.other_line}".rstrip() + "."]),
        ],
        MessageId.EXCLUDED_SIZE: [*sentences.get(MessageId.EXCLUDED_SIZE, ()), *result.data_sizes.findings],
        MessageId.EXCEPTION_ON_DATA: left_out_checks(program, result.left_out),
        MessageId.PYTHON_STATE: map(str, result.changed_values),
    }
    for id, messages in texts.items():
        for text in messages:
            warn(text, id)
    dims, branches = dim_table(facts, names, specialized, result.relations), result.data_sizes.branches
    return Capture(
        program,
        names,
        facts.sizes.labels,
        specialized,
        strategy,
        result.decisions,
        dims,
        branches,
        result.conditions,
    )


def _of_program(request: Request, program: ExportedProgram) -> Captured:
    """Returns a program that the user captured, here or in another process."""
    shape_env = dynamic_dims.shape_env_of_inputs(program)
    if shape_env is not None and program.range_constraints and is_from_file(shape_env):
        find("capture", "guards of a file")(program, shape_env)
    share_storages(program.graph)
    runs = PairedRuns(None, program)
    facts = SizeProof(request, program, runs)
    decisions = ("skipped: the model is an ExportedProgram",)
    relations, of_data = tuple(dim_relations(facts)), data_sizes(facts, runs)
    return Captured(program, False, facts, decisions, relations=relations, data_sizes=of_data)


# --- the order of attempts --------------------------------------------------------------------------------------------


def _capture_paths(request: Request, model: torch.nn.Module, decided: Decided) -> Sequence[Captured]:
    """Captures the model; one program for each path through a forward that branches on data."""
    first = _attempt(request, model, original_example(request), strict=False)
    if isinstance(first, UNDECIDED) and not is_number(first) and is_installed(_BRANCHES):
        captured: Sequence[Captured] = find("capture", "paths")(
            model, lambda: _capture_module(request, model, decided), decided, request.max_data_paths
        )
        if captured:
            return captured
    return [_capture_module(request, model, decided, first)]


def _capture_module(
    request: Request, model: torch.nn.Module, decided: Decided, first: Captured | Exception | None = None
) -> Captured:
    """Captures the user's example in non-strict mode, and again where that fails or fixes a small dim.

    Args:
        request: What to capture.
        model: The module.
        decided: Receives the decisions.
        first: The outcome for the user's example in non-strict mode, if it is known.
    """
    captured = first = first or _attempt(request, model, original_example(request), strict=False)
    for example in _other_examples(request, first):
        other = _attempt(request, model, example, strict=False)
        if isinstance(other, Captured) and not other.facts.exclude_example():
            captured = other
            break
        if example.specializes and isinstance(captured, Exception) and is_dim_conflict(str(other)):
            captured = first = other  # the forward runs on these sizes, so this error is the reason
    if isinstance(captured, Exception) and _strict_mode_may_help(model, captured):
        failure = captured
        captured = _attempt(request, model, original_example(request), strict=True)
        if isinstance(captured, Captured):
            captured = captured.because(f"repeated in strict mode, because non-strict mode raised {summarize(failure)}")
        else:
            decided(f"failed in strict mode too: {summarize(captured)}")
    if isinstance(captured, Captured):
        _refuse_lost_tensors(request, captured.program)
        captured = _with_slices(request, model, _with_symbolic_numbers(request, model, captured))
        captured.program.example_inputs = (request.args, request.kwargs)
        return captured
    error = first if isinstance(first, Exception) else captured
    if isinstance(error, UNDECIDED) and not is_number(error) and not is_installed(_BRANCHES):
        find("capture", "paths")  # says what is missing
    text = explain_failure(model, error, bool(request.float_leaves), is_number(error))
    raise CaptureError(text, id=failure_id(error)) from error


def _other_examples(request: Request, outcome: Captured | Exception) -> Iterator[Example]:
    """Yields the examples to try after a capture of the user's example.

    Where a capture fixes a dim whose example size is 0 or 1, a larger example may keep it dynamic. Where it fails,
    torch may need to know that such a size is 1, or an expression of sizes, as in a broadcast.
    """
    small = small_axes(request)
    if isinstance(outcome, Exception):
        yield from enlarged_examples(request, small)
        if (small or is_broadcast_conflict(str(outcome))) and not is_condition(outcome):
            yield specializing_example(request)
    elif small:
        is_fixed = any(outcome.facts.fixes(number, axis) for number, axis in small)
        if is_fixed:
            yield next(enlarged_examples(request, small))
        if outcome.facts.exclude_example() or (is_fixed and outcome.restrictions and not outcome.truncates_sizes):
            yield specializing_example(request)


def _with_symbolic_numbers(request: Request, model: torch.nn.Module, captured: Captured) -> Captured:
    """Captures in strict mode where the model makes a Python integer of a size: strict mode keeps it symbolic."""
    is_possible = current_path() is None and not has_scripts(model)
    if captured.truncates_sizes and not captured.strict and is_possible:
        other = _attempt(request, model, original_example(request), strict=True)
        if isinstance(other, Captured) and other.frozen < captured.frozen:
            return other.because(_NUMBERS_IN_STRICT_MODE)
    return captured


def _with_slices(request: Request, model: torch.nn.Module, captured: Captured) -> Captured:
    """Captures with a slice for each piece of a split whose number of pieces restricts the sizes."""
    if captured.counts_pieces and not captured.strict:
        other = _attempt(request, model, original_example(request), strict=False, with_slices=True)
        if isinstance(other, Captured) and other.restrictions < captured.restrictions:
            return other.because("repeated with slices in place of pieces, whose number restricts a dynamic dim")
    return captured


def _refuse_lost_tensors(request: Request, program: ExportedProgram) -> None:
    """Raises a CaptureError if torch made a constant of a tensor that it traced, because a constant has no values then.

    A module or arguments that are fake have fake constants of their own, which are the caller's wish.
    """
    lost = _lost_tensor(request, program)
    if lost is not None:
        line = next((call_line(user) for user in lost.users), "")
        raise CaptureError(
            f"torch.export could not capture {type(request.model).__name__}: it made a constant of a tensor that "
            f"has no values during capture{line}; compute with torch and Python numbers instead of NumPy there, and "
            "use detach() instead of Tensor.data.",
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


def _strict_mode_may_help(model: torch.nn.Module, error: Exception) -> bool:
    """Returns False for errors that do not depend on the mode: the forward's own errors and conflicts of dims.

    Strict mode would trace the interpreter of TorchScript, not the model. A condition on data fails in strict mode too,
    and one whose bool is compared, as in ``bool(x.sum() > 0) is True``, would be false for all data. A number of data,
    as in ``int(x.sum())``, stays symbolic there.
    """
    if (
        current_path() is not None
        or has_scripts(model)
        or (is_condition(error) and (not is_number(error) or compares_identity(model)))
    ):
        return False
    own = (LookupError, AttributeError, NameError, AssertionError, ImportError, ArithmeticError)
    return not isinstance(error, own) and not is_dim_conflict(str(error))


# --- one attempt ------------------------------------------------------------------------------------------------------


def _attempt(
    request: Request, model: torch.nn.Module, example: Example, strict: bool, with_slices: bool = False
) -> Captured | Exception:
    """Captures from one example; returns the error if torch.export fails, so that the caller can choose what to do.

    If the model contradicts a Dim, the capture is repeated with every Dim as Dim.AUTO. If the forward returns a class
    that torch.export does not know, the capture is repeated with this class registered. If the forward computes
    gradients of values that torch.export does not see, the capture is repeated with these values recorded. If
    autograd refuses the forward, as where it writes results of parameters into a view of a buffer, the capture is
    repeated without it.
    """
    decisions = [example.decision] if example.decision else []
    dynamic_shapes, auto_dims, register_outputs = request.dynamic_shapes, False, False
    changes = Changes(with_slices=with_slices)
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
        elif "Constraints violated (" in str(outcome) and not auto_dims:
            dynamic_shapes, auto_dims = pytree.tree_map_only(Dim, lambda _: Dim.AUTO, dynamic_shapes), True
            decisions.append("repeated with Dim.AUTO for each Dim, because the model contradicts the requested Dims")
        elif "in output, which is not a known type" in str(outcome) and not register_outputs:
            register_outputs = True
            decisions.append(
                "repeated with the classes of the outputs registered, because torch.export did not know them"
            )
        elif is_of_gradients(outcome) and torch.is_grad_enabled() and not changes.without_grad:
            changes = replace(changes, without_grad=True)
            decisions.append("repeated under torch.no_grad(), because the forward does not run outside of it")
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
    with (
        CAPTURE_LOCK,
        exporting(),
        torch.no_grad() if changes.without_grad else nullcontext(),
        nullcontext() if example.specializes else size_oblivious(),
        one_cudnn_precision(),
        patched_torch(model, strict, changes) as record,
        autocast_disabled() as caller_autocast,
        wrap_forward(
            model,
            example.kwargs,
            request.inputs,
            caller_autocast,
            record.mode,
            float_leaves=request.float_leaves,
            register_outputs=register_outputs,
            strict=strict,
        ),
    ):
        try:
            program = torch.export.export(
                model, example.args, example.kwargs, dynamic_shapes=dynamic_shapes, strict=strict
            )
            raise_handled(record.errors)
        except OnnxExporterError:  # the forward calls export()
            raise
        except Exception as error:  # the forward is the user's code and may raise anything
            return error
        share_storages(program.graph)
        changed = record.changed_values
        runs = PairedRuns(model, program, None if changed is None else changed.state)
        facts = SizeProof(request, program, runs)
        facts.conditions, facts.raising_axes, facts.other_line  # noqa: B018  decided now, as in the capture
        of_data = data_sizes(facts, runs)
        state = () if changed is None else tuple(dependent_values(changed, facts, runs))
        relations = tuple(dim_relations(facts))
        return Captured(program, strict, facts, changed_values=state, relations=relations, data_sizes=of_data)
