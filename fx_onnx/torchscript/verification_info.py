"""``VerificationInfo``: the differences between the values of an ONNX program and of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram

from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.messages import MessageId
from fx_onnx.core.metadata import ORIGINAL_NODE_NAME
from fx_onnx.program.input_binding import call_arguments
from fx_onnx.program.onnx_program import ONNXProgram
from fx_onnx.program.verification.fx_slices import executed
from fx_onnx.program.verification.reference_runs import Pair, Sides, lifted_arguments
from fx_onnx.program.verification.tensor_comparison import as_pair, distances, largest

__all__ = ["VerificationInfo", "verify_onnx_program"]

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
            "abs_diff_hist": [each.tolist() for each in self.abs_diff_hist],
            "rel_diff_hist": [each.tolist() for each in self.rel_diff_hist],
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
    exported = onnx_program.exported_program
    if exported is None:
        raise ArgumentError("The program has no exported_program to compare with.", id=MessageId.NOTHING_TO_COMPARE)
    if args is None and kwargs is None:
        if exported.example_inputs is None:
            raise ArgumentError(
                "The exported program has no example arguments; give args or kwargs.", id=MessageId.NOTHING_TO_COMPARE
            )
        args, kwargs = exported.example_inputs
    positional, named = call_arguments(args or (), kwargs)
    if not compare_intermediates:
        pairs: Iterable[Pair] = Sides(onnx_program).sample(positional, named).pairs
    else:
        pairs = _value_pairs(onnx_program, exported, positional, named)
    return [VerificationInfo.from_tensors(*pair) for pair in pairs]


def _value_pairs(
    program: ONNXProgram, exported: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[Pair]:
    """Yields the name and both values of each FX node that the ONNX program computes too, in the order of execution."""
    computed = {node.name for node in exported.graph.nodes if node.op == "call_function"}
    results = [value for node in program.model.graph for value in node.outputs if value.name]
    by_fx_name = {value.metadata_props.get(ORIGINAL_NODE_NAME, value.name): str(value.name) for value in results}
    names = {fx_name: name for fx_name, name in by_fx_name.items() if fx_name in computed}
    found = dict(zip(names, program.compute_values(list(names.values()), args, kwargs), strict=True))
    for node, value in executed(exported.graph_module, lifted_arguments(exported, args, kwargs)):
        if node.name in found and isinstance(value, (torch.Tensor, int, float, bool)):
            yield names[node.name], value, found[node.name]
