"""Compares an ONNX program with the PyTorch module on the same inputs, and says why they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from torch.export import ExportedProgram

from fx_onnx.messages.arguments import check_flag, check_name, check_tolerance, refuses_unknown_keywords, shown
from fx_onnx.messages.errors import ArgumentError, CheckerError, OnnxExporterError, first_line
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.messages.progress import report_progress
from fx_onnx.onnx_model.weights import has_data
from fx_onnx.program.input_binding import call_arguments, user_leaves
from fx_onnx.program.session import refused_opset
from fx_onnx.torch_internals.torch_private import pytree
from fx_onnx.verification.diagnosis import Diagnosis
from fx_onnx.verification.first_difference import PartComparison
from fx_onnx.verification.fx_origin import origin_of
from fx_onnx.verification.other_sizes import Resizer, Sizes, cache_limits
from fx_onnx.verification.reference_runs import Program, Sample, Sides, attempt
from fx_onnx.verification.repro import repro_of_model, repro_of_part
from fx_onnx.verification.tensor_comparison import Difference, Tolerance
from fx_onnx.verification.verification_result import Cause, SizeResult, Verification

__all__ = ["Difference", "Verification", "check_model", "verify"]


def check_model(program: Program) -> None:
    """Checks the model with ONNX's checker and shape inference. Large weights are not serialized for this.

    Raises:
        CheckerError: the model is not valid ONNX. The message contains the first line of the checker's message.
    """
    proto = ir.serde.serialize_model(_without_weights(program.model))
    try:
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise CheckerError(f"The model is not valid ONNX: {str(error).strip().splitlines()[0]}") from error


def _without_weights(model: ir.Model) -> ir.Model:
    """Returns a copy whose larger weights, and those without data, are inputs.

    The checker needs their types and shapes only, and a protobuf message is limited to 2 GB.
    """
    model = model.clone()
    for output in model.graph.outputs:
        output.shape = output.shape or ir.Shape([])  # the checker demands one, although the rank may depend on data
    for value in list(model.graph.initializers.values()):
        weight = value.const_value
        if weight is not None and (weight.nbytes > 1024 or not has_data(weight)):
            del model.graph.initializers[str(value.name)]
            if not value.is_graph_input():
                model.graph.inputs.append(value)
    return model


@refuses_unknown_keywords
def verify(
    program: Program,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    module: Callable[..., Any] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    provider: str | None = None,
    other_sizes: bool = True,
) -> Verification:
    """Compares the outputs of the ONNX program with the outputs of the PyTorch module, and finds out why they differ.

    Args:
        program: the ONNXProgram.
        args: the module's positional arguments. Both sides get copies, because they may write to them.
        kwargs: the module's keyword arguments.
        module: the module to compare with; by default the module of the exported program. Its buffers are restored. The
            new values of buffers are compared if it is a Module.
        rtol: the allowed difference relative to the largest magnitude of the output. The default depends on the dtype:
            1e-6 for float64, 1e-4 for float32, 1e-2 for float16, 5e-2 for bfloat16, 0.25 for 8-bit floats. One element
            of 1,000 in float16 or bfloat16 may differ by four times as much, if neither rtol nor atol is given.
        atol: the allowed absolute difference, which is added to the relative one; by default 1e-7 for floats.
        provider: the execution provider of ONNX Runtime, such as ``CPUExecutionProvider``; None is CUDA if it is
            available, or else the CPU.
        other_sizes: whether the outputs are also compared for a larger and a smaller size of each dynamic dim, and for
            a size that each finding excludes.

    Returns:
        The differences of all outputs: the results of the module, then the new values of the buffers and arguments that
        it writes. If one differs, the result has the cause. Call its ``check()`` to raise an error then.

    Raises:
        ArgumentError: there is no module to compare with, or the arguments do not fit it.
        VerificationError: the program returns fewer outputs than the module.
    """
    if not hasattr(program, "exported_program"):
        raise ArgumentError(f"verify() needs an ONNXProgram, not {shown(program)}.")
    args, kwargs = call_arguments(args, kwargs)
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance is not None:
            check_tolerance(name, tolerance)
    if module is not None and not callable(module):
        raise ArgumentError(f"module must be a module or a function, not {shown(module)}.")
    if provider is not None:
        check_name("provider", provider)
    check_flag("other_sizes", other_sizes)
    if module is None and program.exported_program is None:
        raise ArgumentError(
            "The program has no exported_program to compare with; give verify() a module.",
            id=MessageId.NOTHING_TO_COMPARE,
        )
    _check_arguments(None if module is not None else program.exported_program, args, kwargs)
    sides = Sides(program, module, Tolerance(rtol, atol), provider)
    return _Verifier(sides).run(args, kwargs, other_sizes)


def _check_arguments(captured: ExportedProgram | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Checks that a module takes the arguments, of which an ONNX program takes more forms.

    Raises:
        ArgumentError: an argument is a NumPy array, or the captured program takes arguments of another structure.
    """
    if any(isinstance(leaf, np.ndarray) for leaf in pytree.tree_leaves((args, kwargs))):
        raise ArgumentError(
            "verify() calls the module too, which takes tensors, not NumPy arrays; use torch.from_numpy().",
            id=MessageId.CALL_OF_PROGRAM,
        )
    if captured is not None and captured.call_spec.in_spec is not None:
        user_leaves(captured, args, kwargs, options=("rtol", "atol", "provider"))


def _failure_text(error: Exception) -> str:
    return error.message.removesuffix(".") if isinstance(error, OnnxExporterError) else first_line(error)


def _refused(given: str, compared: str) -> str:
    return (
        f"The sizes {given} are not compared, because ONNX Runtime's GroupQueryAttention takes a past with one text or "
        f"one new token only; {compared} are compared instead."
    )


class _Verifier:
    """Compares a program with a module for one or more sizes."""

    def __init__(self, sides: Sides) -> None:
        self.sides, self.program = sides, sides.program
        self.samples: list[Sample] = []
        self.failed: list[SizeResult] = []
        self.excluded: list[SizeResult] = []
        self.skipped: list[str] = []

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], other_sizes: bool) -> Verification:
        """Compares the given arguments, then those of other sizes, and looks for the cause of a difference."""
        self.skipped += filter(None, [refused_opset(self.program.model) if self.sides.provider is None else ""])
        resizer = self._resizer(args, kwargs, other_sizes)
        if resizer is not None and (fitted := resizer.fitted(resizer.sizes)) != resizer.sizes:
            args, kwargs = resizer.arguments(fitted)
            self.skipped.append(_refused(resizer.label(resizer.sizes), resizer.label(fitted)))
        try:
            self.samples.append(self.sides.sample(args, kwargs))
        except AssertionError as error:
            if self.sides.module is not self.sides.captured or not str(error).startswith("Guard failed"):
                raise
            raise ArgumentError(
                f"The captured program does not take these arguments ({error}); give verify() the module.",
                id=MessageId.CALL_OF_PROGRAM,
            ) from error
        if other_sizes and resizer is not None:
            self.skipped += [resizer.reason] if resizer.reason else []
            rounds = list(resizer.rounds())
            for done, candidates in enumerate(rounds, 1):
                report_progress(done, len(rounds) + 1)
                self._compare_sizes(resizer, candidates)
            for finding, sizes in resizer.excluded():
                self.skipped += filter(None, [self._compare_size(resizer, sizes, finding)])
        return self._result()

    def _resizer(self, args: Sequence[Any], kwargs: Mapping[str, Any], other_sizes: bool) -> Resizer | None:
        """Returns what makes arguments of other sizes, if some are needed."""
        exported, model, dims = self.program.exported_program, self.program.model, self.program.dims
        limits = cache_limits(model)
        if exported is None or not (other_sizes or limits):
            return None
        told = dims.conditions if dims else None
        return Resizer(exported, args, kwargs, model.graph.inputs, limits, told)

    def _compare_sizes(self, resizer: Resizer, candidates: Sequence[Sizes]) -> None:
        """Compares the first of some sizes that the module takes, or else each dim of the first sizes alone."""
        refusals = []
        for sizes in candidates:
            refusal = self._compare_size(resizer, resizer.fitted(sizes, len(self.samples)))
            if not refusal:
                return
            refusals.append(refusal)
        fitted = [resizer.fitted(sizes, len(self.samples)) for sizes in resizer.single(candidates[0])]
        self.skipped += [r for sizes in fitted if (r := self._compare_size(resizer, sizes))] or refusals[:1]

    def _compare_size(self, resizer: Resizer, sizes: Sizes, finding: str = "") -> str:
        """Compares the outputs for some sizes. Returns why they are left out, or an empty string."""
        args, kwargs = resizer.arguments(sizes)
        label = resizer.label(sizes)
        expected = attempt(lambda: self.sides.expected(args, kwargs))
        if isinstance(expected, Exception):
            refusal = f"{self.sides.compared} refuses them: {first_line(expected)}"
            return f"The sizes {label} are not compared, because {refusal}"
        actual = attempt(lambda: self.sides.actual(args, kwargs))
        if isinstance(actual, Exception):
            result = SizeResult(label, (), f"the ONNX program fails: {_failure_text(actual)}", finding)
            (self.excluded if finding else self.failed).append(result)
            return ""
        sample = self.sides.sample(args, kwargs, label, expected, actual)
        if finding:
            self.excluded.append(SizeResult(label, sample.outputs, finding=finding))
        else:
            self.samples.append(sample)
        return ""

    def _result(self) -> Verification:
        """Returns the result, with the cause of the first difference that is not inaccurate in eager."""
        cause: Cause | None = None
        repro: Callable[[Path], Path] | None = None
        samples = self.samples
        for index, sample in enumerate(samples):
            if sample.ok or cause is not None:
                continue
            diagnosis = Diagnosis(self.sides, getattr(self.program, "_origins", None))
            samples[index], cause = diagnosis.run(sample)
            if not sample.ok:
                repro = self._repro(sample, diagnosis, cause)
        given, *others = samples
        sizes = [*(SizeResult(sample.sizes, sample.outputs) for sample in others), *self.failed]
        values = (lambda: self._values(given)) if self.program.exported_program is not None else None
        return Verification(
            given.outputs, tuple(sizes), tuple(self.skipped), cause, values, repro, tuple(self.excluded)
        )

    def _repro(self, sample: Sample, diagnosis: Diagnosis, cause: Cause | None) -> Callable[[Path], Path]:
        """Returns a function that writes the part that is wrong, or else the whole model."""
        title = cause.text if cause is not None else "the ONNX program differs from the PyTorch module"
        part, comparison = diagnosis.part, diagnosis.comparison
        if part is not None and comparison is not None:
            return lambda folder: repro_of_part(folder, comparison, part, title, self.sides.provider)
        return lambda folder: repro_of_model(folder, self.sides, sample, title)

    def _values(self, sample: Sample) -> tuple[Difference, ...]:
        """Returns the difference of each value that the model computes for an FX node."""
        comparison = PartComparison(self.sides, sample.args, sample.kwargs)
        return tuple(
            replace(compared.difference, module=origin_of(compared.part.node, (), None).module)
            for compared in comparison
        )
