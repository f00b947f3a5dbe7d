"""``verify`` of torch.onnx.verification: exports a module and compares the results, with the options of torch.onnx."""

from __future__ import annotations

import copy
import enum
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnxruntime
import torch

from fx_onnx.core.arguments import shown
from fx_onnx.core.errors import ArgumentError, OnnxExporterWarning, no_effect
from fx_onnx.core.export_modes import TrainingMode
from fx_onnx.core.messages import MessageId
from fx_onnx.core.torch_private import pytree
from fx_onnx.export import export
from fx_onnx.program.input_binding import call_arguments
from fx_onnx.program.onnx_program import ONNXProgram
from fx_onnx.program.session import new_session
from fx_onnx.program.verification.reference_runs import output_pairs
from fx_onnx.program.verification.tensor_comparison import TORCH_ONNX, Tolerance, as_pair, compare
from fx_onnx.program.verify import verify as find_cause

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
    for given in (args, *(additional_test_inputs or ())):
        positional, named = call_arguments(given, kwargs if given is args else None)
        try:
            check_outputs(program, module, positional, named, options)
        except AssertionError as error:
            cause = find_cause(program, positional, named, module=module, other_sizes=False).cause
            raise AssertionError(f"{error}\n{cause}" if cause is not None else str(error)) from None


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
) -> None:
    """Compares the outputs of a program with those of a module.

    Args:
        program: the program.
        module: the module, whose buffers are restored if it is a ``torch.nn.Module``.
        args: the positional arguments.
        kwargs: the keyword arguments.
        options: how to compare.

    Raises:
        AssertionError: they differ.
        ArgumentError: this ONNX Runtime does not have the backend.
    """
    run = program.call_reference
    if options.backend is not OnnxBackend.REFERENCE:
        program.initialize_inference_session(functools.partial(_session, options.backend))
        run = program.__call__
    results: list[Any] = []

    def observed(*args: Any, **kwargs: Any) -> Any:
        results.append(module(*args, **kwargs))
        return results[-1]

    for name, expected, found in output_pairs(program, args, kwargs, observed, run):
        _check_value(name, expected, found, options)
    if not options.ignore_none and None in pytree.tree_leaves(results):
        raise AssertionError("The module returns None, which the ONNX program cannot return.")


def _session(backend: OnnxBackend, model: str | bytes) -> onnxruntime.InferenceSession:
    """Returns a session that runs on one provider only."""
    if backend.value not in onnxruntime.get_available_providers():
        raise ArgumentError(
            f"This ONNX Runtime has no {backend.value}; install the package that has it.", id=MessageId.PROVIDER
        )
    session = new_session(model)
    session.set_providers([backend.value])
    return session


def _check_value(name: str, expected: Any, found: torch.Tensor, options: VerificationOptions) -> None:
    """Raises AssertionError if two values differ by more than the options allow."""
    expected, found = as_pair(torch.as_tensor(expected), found)
    if not options.check_shape:
        expected, found = torch.broadcast_tensors(expected, found)
    tolerance = Tolerance(options.rtol, options.atol, by_element=True, check_dtype=options.check_dtype)
    difference = compare(name, expected, found, tolerance)
    if difference.ok:
        return
    part, different = options.acceptable_error_percentage, difference.outliers / max(1, expected.numel())
    if part is None or different > part or found.shape != expected.shape:
        raise AssertionError(f"The output {name!r} differs: {difference.problem}.")
    warnings.warn(f"{different:.2%} of the output {name!r} differ, which is allowed.", OnnxExporterWarning, 2)
