"""Judges random programs: the export is right, is refused with a clear error, or shows a mistake of the exporter."""

from __future__ import annotations

import enum
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim
from torch.utils._python_dispatch import TorchDispatchMode

import fx_onnx
from tests.compare import assert_close
from tests.fuzz.generator import SIZES, Program

OPSETS = tuple(range(18, 27))


class Outcome(enum.Enum):
    """The verdicts, the last four of which are mistakes."""

    RIGHT = "right"
    UNSTABLE = "unstable"
    """The results differ from eager's, but eager's also change that much under one rounding error of each operator."""
    CAPTURE = "not captured"
    """torch.export cannot capture the program, and the exporter raises a clear error."""
    REFUSED = "refused"
    """torch.export captures the program, and the exporter refuses it with a clear error."""
    WARNED = "right only for some sizes, as a warning says"
    WRONG = "wrong"
    RAW_ERROR = "raw error"
    """The export raises an error that is not one of the package's errors."""
    NOT_LOADED = "does not load"
    NOT_RUN = "does not run"


MISTAKES = (Outcome.WRONG, Outcome.RAW_ERROR, Outcome.NOT_LOADED, Outcome.NOT_RUN)


@dataclass(frozen=True)
class Verdict:
    """An outcome, the opset, and the message that explains the outcome."""

    outcome: Outcome
    opset: int
    detail: str = ""


def opsets(seed: int) -> tuple[int, ...]:
    """Returns the opset of a seed; every hundredth seed has all of them."""
    return OPSETS if seed % 100 == 0 else (random.Random(f"opset {seed}").choice(OPSETS),)


def judge(program: Program, opset: int) -> Verdict:
    """Exports the program, runs it at every size that it was exported for, and compares it with eager mode."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        shapes = ({0: Dim.AUTO}, {0: Dim.AUTO}, None) if program.dynamic else None
        try:
            exported = fx_onnx.export(
                program.module(), program.inputs(0), dynamic_shapes=shapes, opset_version=opset, verbose=False
            )
        except fx_onnx.CaptureError as error:
            return Verdict(Outcome.CAPTURE, opset, str(error))
        except fx_onnx.OnnxExporterError as error:
            return Verdict(Outcome.REFUSED, opset, str(error))
        except Exception as error:
            return Verdict(Outcome.RAW_ERROR, opset, f"{type(error).__name__}: {error}")
        verdict = _compare(program, exported, opset)
    announced = next((str(each.message) for each in caught if "wrong where" in str(each.message)), None)
    if verdict.outcome is Outcome.WRONG and announced is not None:
        return Verdict(Outcome.WARNED, opset, f"{verdict.detail}; {announced}")
    return verdict


def _compare(program: Program, exported: fx_onnx.ONNXProgram, opset: int) -> Verdict:
    for size in _sizes(program, exported):
        try:
            got = exported(*program.inputs(size))
        except Exception as error:
            known = "NOT_IMPLEMENTED" in str(error) or "INVALID_GRAPH" in str(error) or "FAIL : Load" in str(error)
            return Verdict(Outcome.NOT_LOADED if known else Outcome.NOT_RUN, opset, f"size {size}: {error}")
        try:
            assert_close(got, _expected(program, exported, size))
        except AssertionError as error:
            outcome = Outcome.UNSTABLE if is_unstable(program, size) else Outcome.WRONG
            return Verdict(outcome, opset, f"size {size}: {error}")
    return Verdict(Outcome.RIGHT, opset)


def _expected(program: Program, exported: fx_onnx.ONNXProgram, size: int) -> list[Tensor]:
    """Returns the results, then the inputs and buffers that the program writes (outputs ``x_out``, ``state_out``)."""
    results, written = program.eager(size)
    names = [str(value.name) for value in exported.model.graph.outputs[len(results) :]]
    return [*results, *(written[name.removesuffix("_out")] for name in names)]


def _sizes(program: Program, exported: fx_onnx.ONNXProgram) -> range:
    """Returns all sizes, by index, if the first dim of every matrix is dynamic without limits, else the example's."""
    dims = [
        value.shape[0] for value in exported.model.graph.inputs if value.shape is not None and len(value.shape) == 2
    ]
    dynamic = program.dynamic and all(not isinstance(dim, int) for dim in dims)
    limited = exported.exported_program is not None and any(
        limits.lower > min(size["n"] for size in SIZES) or limits.upper < max(size["n"] for size in SIZES)
        for limits in exported.exported_program.range_constraints.values()
    )
    return range(len(SIZES)) if dynamic and not limited else range(1)


_SUMMING = ("fft_", "mm", "convolution", "sum", "mean", "norm", "softmax", "dot", "var", "std", "dist")
"""Parts of the names of operators that sum products, whose rounding errors are those of the largest term."""


class _RoundingErrors(TorchDispatchMode):
    """Moves every floating-point result of an operator by one rounding error of its dtype, up or down at random.

    The rounding error of an element is that of the element itself; in the result of an operator that sums products, it
    is that of the largest element.
    """

    supports_higher_order_operators = True

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.draw = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not isinstance(result, Tensor) or _may_alias(func):
            return result
        sums = any(part in func._schema.name for part in _SUMMING)
        if result.is_complex():
            return torch.view_as_complex(self._moved(torch.view_as_real(result.resolve_conj()), sums))
        return self._moved(result, sums) if result.is_floating_point() else result

    def _moved(self, result: Tensor, sums: bool) -> Tensor:
        sign = torch.randint(0, 2, result.shape, generator=self.draw).to(result.dtype) * 2 - 1
        magnitude = result.abs().amax() if sums and result.numel() else result.abs()
        return result + sign * magnitude * torch.finfo(result.dtype).eps


def _may_alias(func: Any) -> bool:
    if not isinstance(func, torch._ops.OpOverload):
        return True  # a higher-order operator; the operators of its body are not seen here
    return any(argument.alias_info is not None for argument in (*func._schema.returns, *func._schema.arguments))


def is_unstable(program: Program, size: int) -> bool:
    """Returns whether one rounding error of each operator moves eager's results out of the tolerance."""
    want = program.eager(size)[0]
    for seed in range(5):
        with _RoundingErrors(seed):
            moved = program.eager(size)[0]
        try:
            assert_close(moved, want)
        except AssertionError:
            return True
    return False


def minimized(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Returns a shorter program for which ``fails`` is still true, without unnecessary results and statements."""
    for result in program.results:
        alone = replace(program, results=(result,))
        if fails(alone):
            program = alone
            break
    shrinking = True
    while shrinking:
        shrinking = False
        for place in reversed(range(len(program.statements))):
            statements = program.statements[:place] + program.statements[place + 1 :]
            shorter = replace(program, statements=statements)
            if fails(shorter):
                program, shrinking = shorter, True
    return program
