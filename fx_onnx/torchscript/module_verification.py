"""``verify`` of torch.onnx.verification: exports a module and compares the results, with the options of torch.onnx."""

from __future__ import annotations

import copy
import enum
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument

from fx_onnx.core.arguments import shown
from fx_onnx.core.errors import ArgumentError, OnnxExporterWarning, no_effect
from fx_onnx.core.export_modes import TrainingMode
from fx_onnx.core.user_outputs import result_specs
from fx_onnx.export import export
from fx_onnx.program.input_binding import call_arguments
from fx_onnx.program.onnx_program import ONNXProgram
from fx_onnx.program.verification.diagnosis import Diagnosis
from fx_onnx.program.verification.reference_runs import Sides
from fx_onnx.program.verification.tensor_comparison import TORCH_ONNX, Tolerance

__all__ = ["OnnxBackend", "VerificationOptions", "check_outputs", "verify"]


class OnnxBackend(enum.Enum):
    """What runs the ONNX program."""

    REFERENCE = "ONNXReferenceEvaluator"
    ONNX_RUNTIME_CPU = "CPUExecutionProvider"
    ONNX_RUNTIME_CUDA = "CUDAExecutionProvider"


@dataclass
class VerificationOptions:
    """How ``verify`` and ``find_mismatch`` compare.

    Attributes:
        flatten: has no effect, because a program takes and returns tensors in the structure of the module.
        ignore_none: whether a None among the results of the module is left out. A program cannot return None.
        check_shape: whether the shapes must be equal; False compares after broadcasting.
        check_dtype: whether the dtypes must be equal.
        backend: what runs the ONNX program.
        rtol: the tolerance relative to each element.
        atol: the absolute tolerance, added to the relative one.
        remained_onnx_input_idx: has no effect, because a program keeps inputs that the module does not use.
        acceptable_error_percentage: the fraction of the elements that may differ; such a difference is a warning.

    Raises:
        ArgumentError: ``acceptable_error_percentage`` is not between 0 and 1.
    """

    flatten: bool = True
    ignore_none: bool = True
    check_shape: bool = True
    check_dtype: bool = True
    backend: OnnxBackend = OnnxBackend.ONNX_RUNTIME_CPU
    rtol: float = TORCH_ONNX.rtol
    atol: float = TORCH_ONNX.atol
    remained_onnx_input_idx: Sequence[int] | None = None
    acceptable_error_percentage: float | None = None

    def __post_init__(self) -> None:
        part = self.acceptable_error_percentage
        if part is not None and not 0 <= part <= 1:
            raise ArgumentError(f"acceptable_error_percentage must be a number from 0 to 1, not {shown(part)}.")


def verify(
    model: torch.nn.Module,
    input_args: torch.Tensor | tuple[Any, ...],
    input_kwargs: Mapping[str, Any] | None = None,
    do_constant_folding: bool = True,
    dynamic_axes: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    training: TrainingMode = TrainingMode.EVAL,
    opset_version: int | None = None,
    keep_initializers_as_inputs: bool = True,
    verbose: bool = False,
    fixed_batch_size: bool = False,
    use_external_data: bool = False,
    additional_test_inputs: Sequence[torch.Tensor | tuple[Any, ...]] | None = None,
    options: VerificationOptions | None = None,
) -> None:
    """Exports a module, runs the program, and compares the results with the module's.

    Args:
        model: the module. Its mode is ``training`` during the call; afterwards its mode and buffers are as before.
        input_args: the positional arguments of the export and of the first comparison.
        input_kwargs: the keyword arguments.
        do_constant_folding: as for ``export``.
        dynamic_axes: as for ``export``.
        input_names: as for ``export``.
        output_names: as for ``export``.
        training: as for ``export``.
        opset_version: as for ``export``.
        keep_initializers_as_inputs: has no effect, because no file is written.
        verbose: as for ``export``.
        fixed_batch_size: has no effect.
        use_external_data: has no effect, because no file is written.
        additional_test_inputs: positional arguments of further comparisons.
        options: how to compare.

    Raises:
        AssertionError: the results differ; the message names the first value that differs.
        ArgumentError: an argument is not valid, or this ONNX Runtime does not have the backend.
    """
    options = options or VerificationOptions()
    _log_without_effect(fixed_batch_size, use_external_data, keep_initializers_as_inputs, options)
    args, kwargs = call_arguments(input_args, input_kwargs)
    module = copy.deepcopy(model)
    module.train(training == TrainingMode.TRAINING or (training == TrainingMode.PRESERVE and model.training))
    program = export(
        model, args, kwargs=kwargs, input_names=input_names, output_names=output_names, dynamic_axes=dynamic_axes,
        opset_version=opset_version, verbose=verbose, training=training, do_constant_folding=do_constant_folding,
    )  # fmt: skip
    if not options.ignore_none and _returns_none(program):
        raise AssertionError("The module returns None, which the ONNX program cannot return.")
    for given in (args, *(additional_test_inputs or ())):
        positional, named = call_arguments(given, kwargs if given is args else None)
        check_outputs(program, module, positional, named, options, finds_cause=True)


def _returns_none(program: ONNXProgram) -> bool:
    found = [spec.arg for spec in result_specs(cast("ExportedProgram", program.exported_program))]
    return any(isinstance(each, ConstantArgument) and each.value is None for each in found)


def _log_without_effect(
    fixed_batch_size: bool, use_external_data: bool, keep_initializers_as_inputs: bool, options: VerificationOptions
) -> None:
    """Logs at DEBUG which of the given arguments change nothing."""
    if fixed_batch_size:
        no_effect("fixed_batch_size", "dynamic_axes alone decides which dims are dynamic")
    if use_external_data:
        no_effect("use_external_data", "no file is written")
    if not keep_initializers_as_inputs:
        no_effect("keep_initializers_as_inputs", "no file is written")
    if not options.flatten:
        no_effect("flatten", "the program takes and returns tensors in the structure of the module")
    if options.remained_onnx_input_idx is not None:
        no_effect("remained_onnx_input_idx", "the program keeps inputs that the module does not use")


def check_outputs(
    program: ONNXProgram,
    module: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: VerificationOptions,
    *,
    finds_cause: bool = False,
) -> None:
    """Compares the outputs of a program with those of a module.

    Args:
        program: the program.
        module: the module, whose buffers are restored if it is a ``torch.nn.Module``.
        args: the positional arguments.
        kwargs: the keyword arguments.
        options: how to compare.
        finds_cause: whether the message tells why they differ.

    Raises:
        AssertionError: they differ.
        ArgumentError: this ONNX Runtime does not have the backend.
    """
    uses_reference = options.backend is OnnxBackend.REFERENCE
    tolerance = Tolerance(
        options.rtol, options.atol, True, options.check_dtype, options.check_shape, options.acceptable_error_percentage
    )
    provider, run = (None, program.call_reference) if uses_reference else (options.backend.value, None)
    sides = Sides(program, module, tolerance, provider, run)
    sample = sides.sample(args, kwargs)
    if (wrong := next((each for each in sample.outputs if not each.ok), None)) is not None:
        cause = Diagnosis(sides, program._origins).run(sample)[1] if finds_cause else None
        text = f"The output {wrong.name!r} differs: {wrong.problem}."
        raise AssertionError(f"{text}\n{cause}" if cause is not None else text)
    for each in (each for each in sample.outputs if each.outliers):
        part = each.outliers / math.prod(each.shape)
        warnings.warn(f"{part:.2%} of the output {each.name!r} differ, which is allowed.", OnnxExporterWarning, 2)
