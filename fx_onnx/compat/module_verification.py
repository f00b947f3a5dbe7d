"""``verify`` and ``verify_onnx_program`` of torch.onnx.verification, with its options and measures of differences."""

from __future__ import annotations

import copy
import enum
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument

from fx_onnx.compat.utils import select_model_mode_for_export
from fx_onnx.export import export
from fx_onnx.messages.arguments import check_tolerance, shown
from fx_onnx.messages.errors import ArgumentError, OnnxExporterWarning, no_effect
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model.metadata import ORIGINAL_NODE_NAME
from fx_onnx.onnx_model.tolerances import distances, largest
from fx_onnx.program.input_binding import call_arguments
from fx_onnx.program.onnx_program import ONNXProgram
from fx_onnx.requests.export_modes import TrainingMode
from fx_onnx.requests.user_outputs import result_specs
from fx_onnx.verification.diagnosis import Diagnosis
from fx_onnx.verification.model_parts import executed
from fx_onnx.verification.reference_runs import Pair, Sides, lifted_arguments
from fx_onnx.verification.tensor_comparison import TORCH_ONNX, Tolerance, as_pair

__all__ = [
    "OnnxBackend",
    "VerificationInfo",
    "VerificationOptions",
    "check_outputs",
    "checked_options",
    "verify",
    "verify_onnx_program",
]


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
        ArgumentError: ``backend`` is not an OnnxBackend, a tolerance is not a number from 0 on, or
            ``acceptable_error_percentage`` is not between 0 and 1.
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
        if not isinstance(self.backend, OnnxBackend):
            choices = ", ".join(map(str, OnnxBackend))
            raise ArgumentError(f"backend must be one of {choices}, not {shown(self.backend)}.")
        check_tolerance("rtol", self.rtol)
        check_tolerance("atol", self.atol)
        part = self.acceptable_error_percentage
        if part is not None and not (isinstance(part, (int, float)) and 0 <= part <= 1):
            raise ArgumentError(f"acceptable_error_percentage must be a number from 0 to 1, not {shown(part)}.")


def checked_options(options: VerificationOptions | None) -> VerificationOptions:
    """Returns the options, or the default ones for None.

    Raises:
        ArgumentError: they are of another class.
    """
    if options is not None and not isinstance(options, VerificationOptions):
        raise ArgumentError(f"options must be VerificationOptions, not {shown(options)}.")
    return options or VerificationOptions()


def verify(
    model: torch.nn.Module,
    input_args: torch.Tensor | tuple[Any, ...],
    input_kwargs: Mapping[str, Any] | None = None,
    do_constant_folding: bool = True,
    dynamic_axes: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    training: TrainingMode | torch.onnx.TrainingMode = TrainingMode.EVAL,
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
    options = checked_options(options)
    _log_without_effect(fixed_batch_size, use_external_data, keep_initializers_as_inputs, options)
    args, kwargs = call_arguments(input_args, input_kwargs)
    module = copy.deepcopy(model)
    program = export(
        model, args, kwargs=kwargs, input_names=input_names, output_names=output_names, dynamic_axes=dynamic_axes,
        opset_version=opset_version, verbose=verbose, training=training, do_constant_folding=do_constant_folding,
    )  # fmt: skip
    if not options.ignore_none and _returns_none(program):
        raise AssertionError("The module returns None, which the ONNX program cannot return.")
    with select_model_mode_for_export(module, training):
        for given in (args, *(additional_test_inputs or ())):
            positional, named = call_arguments(given, kwargs if given is args else None)
            check_outputs(program, module, positional, named, options, finds_cause=True)


def _returns_none(program: ONNXProgram) -> bool:
    results = [spec.arg for spec in result_specs(cast("ExportedProgram", program.exported_program))]
    return any(isinstance(result, ConstantArgument) and result.value is None for result in results)


def _log_without_effect(
    fixed_batch_size: bool, use_external_data: bool, keep_initializers_as_inputs: bool, options: VerificationOptions
) -> None:
    """Logs at DEBUG which of the given arguments change nothing."""
    for argument, is_given, reason in (
        ("fixed_batch_size", fixed_batch_size, "dynamic_axes alone decides which dims are dynamic"),
        ("use_external_data", use_external_data, "no file is written"),
        ("keep_initializers_as_inputs", not keep_initializers_as_inputs, "no file is written"),
        ("flatten", not options.flatten, "the program takes and returns tensors in the structure of the module"),
        (
            "remained_onnx_input_idx",
            options.remained_onnx_input_idx is not None,
            "the program keeps inputs that the module does not use",
        ),
    ):
        if is_given:
            no_effect(argument, reason)


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
    if (wrong := next((output for output in sample.outputs if not output.ok), None)) is not None:
        cause = Diagnosis(sides, program._origins).run(sample)[1] if finds_cause else None
        text = f"The output {wrong.name!r} differs: {wrong.problem}."
        raise AssertionError(f"{text}\n{cause}" if cause is not None else text)
    for output in (output for output in sample.outputs if output.outliers):
        part = output.outliers / math.prod(output.shape)
        warnings.warn(f"{part:.2%} of the output {output.name!r} differ, which is allowed.", OnnxExporterWarning, 2)


# ---------------------------------------------------------------- the differences of values

_BIN_EDGES = torch.tensor([0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 1e6])


@dataclass
class VerificationInfo:
    """The differences between a value of the ONNX program and of PyTorch.

    Attributes:
        name: the name of the ONNX value.
        max_abs_diff: the largest absolute difference; NaN or infinity on one side only counts as infinity.
        max_rel_diff: the largest difference relative to the element's magnitude.
        abs_diff_hist: the histogram of the absolute differences: counts, and the edges of the bins.
        rel_diff_hist: the histogram of the relative differences.
        expected_dtype: the dtype of the value of PyTorch.
        actual_dtype: the dtype of the value of the ONNX program.
    """

    name: str
    max_abs_diff: float
    max_rel_diff: float
    abs_diff_hist: tuple[torch.Tensor, torch.Tensor]
    rel_diff_hist: tuple[torch.Tensor, torch.Tensor]
    expected_dtype: torch.dtype
    actual_dtype: torch.dtype

    @classmethod
    def from_tensors(
        cls, name: str, expected: torch.Tensor | float | int | bool, actual: torch.Tensor | float | int | bool
    ) -> VerificationInfo:
        """Returns the differences of two tensors or numbers.

        A complex ``expected`` is compared as its real view if ``actual`` is real. Tensors of different shapes differ by
        infinity.
        """
        left, right = torch.as_tensor(expected), torch.as_tensor(actual)
        absolute, relative = _differences(*as_pair(left, right))
        return cls(
            name,
            largest(absolute),
            largest(relative),
            torch.histogram(absolute.float(), bins=_BIN_EDGES),
            torch.histogram(relative.float(), bins=_BIN_EDGES),
            left.dtype,
            right.dtype,
        )

    def asdict(self) -> dict[str, Any]:
        """Returns the fields as numbers, lists and strings."""
        return {
            "name": self.name,
            "max_abs_diff": self.max_abs_diff,
            "max_rel_diff": self.max_rel_diff,
            "abs_diff_hist": [tensor.tolist() for tensor in self.abs_diff_hist],
            "rel_diff_hist": [tensor.tolist() for tensor in self.rel_diff_hist],
            "expected_dtype": str(self.expected_dtype),
            "actual_dtype": str(self.actual_dtype),
        }


def _differences(expected: torch.Tensor, actual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the absolute and the relative difference of each element."""
    if expected.shape != actual.shape:
        different = torch.tensor([math.inf])
        return different, different
    magnitudes, absolute = distances(expected, actual)
    relative = torch.where(absolute == 0, 0.0, absolute / magnitudes.clamp(min=1e-7)).nan_to_num(math.inf, math.inf)
    return absolute.flatten(), relative.flatten()


def verify_onnx_program(
    onnx_program: ONNXProgram,
    args: tuple[Any, ...] | None = None,
    kwargs: dict[str, Any] | None = None,
    compare_intermediates: bool = False,
) -> list[VerificationInfo]:
    """Compares the values of an ONNX program with those of its ExportedProgram.

    Args:
        onnx_program: the program.
        args: the positional arguments; without any arguments, those of the export.
        kwargs: the keyword arguments.
        compare_intermediates: compares the value of each FX node that the ONNX program computes too, instead of the
            outputs.

    Raises:
        ArgumentError: the program has no ExportedProgram or no example arguments, or the arguments do not fit.
    """
    exported, positional, named = example_call("verify_onnx_program", onnx_program, args, kwargs)
    if not compare_intermediates:
        pairs: Iterable[Pair] = Sides(onnx_program).sample(positional, named).pairs
    else:
        pairs = _value_pairs(onnx_program, exported, positional, named)
    return [VerificationInfo.from_tensors(*pair) for pair in pairs]


def example_call(
    caller: str, program: Any, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> tuple[ExportedProgram, Sequence[Any], Mapping[str, Any]]:
    """Returns the ExportedProgram of a program and the arguments to compare on: without any, those of the export.

    Raises:
        ArgumentError: the program has no ExportedProgram or no example arguments, or the arguments do not fit.
    """
    if not isinstance(program, ONNXProgram):
        raise ArgumentError(f"{caller}() needs an ONNXProgram, not {shown(program)}.")
    exported = program.exported_program
    if exported is None:
        raise ArgumentError("The program has no exported_program to compare with.", id=MessageId.NOTHING_TO_COMPARE)
    if args is None and kwargs is None:
        if exported.example_inputs is None:
            raise ArgumentError(
                "The exported program has no example arguments; give args or kwargs.", id=MessageId.NOTHING_TO_COMPARE
            )
        args, kwargs = exported.example_inputs
    return exported, *call_arguments(args or (), kwargs)


def _value_pairs(
    program: ONNXProgram, exported: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[Pair]:
    """Yields the name and both values of each FX node that the ONNX program computes too, in the order of execution."""
    computed = {node.name for node in exported.graph.nodes if node.op == "call_function"}
    results = [value for node in program.model.graph for value in node.outputs if value.name]
    by_fx_name = {value.metadata_props.get(ORIGINAL_NODE_NAME, value.name): str(value.name) for value in results}
    names = {fx_name: name for fx_name, name in by_fx_name.items() if fx_name in computed}
    values = dict(zip(names, program.compute_values(list(names.values()), args, kwargs), strict=True))
    for node, value in executed(exported.graph_module, lifted_arguments(exported, args, kwargs)):
        if node.name in values and isinstance(value, (torch.Tensor, int, float, bool)):
            yield names[node.name], value, values[node.name]
