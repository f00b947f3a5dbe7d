"""Finds out why an output of the ONNX program differs from the PyTorch module.

The question is asked in this order: Does the module draw random numbers? Does torch.export's program differ from the
module? Is a part of the ONNX model wrong alone? Is PyTorch's own result less accurate? Does ONNX Runtime's optimizer
cause the difference?

An output that differs is *inaccurate in eager*, which is no error, only if all of this holds:

1. The captured program agrees with the module.
2. Every part of the ONNX model was compared on PyTorch's values. Each agrees with PyTorch's value within the tolerance,
   or agrees with the float64 value within the tolerance and is nearer to it than PyTorch's.
3. The error of the ONNX output, compared with the output of the captured program in float64, is at most
   ``ERROR_FACTOR`` times that of PyTorch's output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import torch
from torch.export import ExportedProgram

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.capture.patches.module_hooks import watch_calls
from fx_onnx.messages.errors import first_line
from fx_onnx.torch_internals.threads import CAPTURE_LOCK
from fx_onnx.torch_internals.torch_private import pytree
from fx_onnx.translation.translation_origins import TranslationOrigins
from fx_onnx.verification.first_difference import ComparedPart, PartComparison, inaccurate_in_eager
from fx_onnx.verification.fx_origin import origin_of
from fx_onnx.verification.model_parts import executed, functional_program, graph_module
from fx_onnx.verification.reference_runs import Sample, Sides, attempt, copied, lifted_arguments, onnx_runner
from fx_onnx.verification.tensor_comparison import Difference, Tolerance, compare, errors_in_double
from fx_onnx.verification.verification_result import Cause

__all__ = ["CalledModule", "Diagnosis", "first_uncaptured", "part_cause"]

ERROR_FACTOR = 2
"""Where no part is wrong, the errors of both sides are due to rounding, and either may be the larger by chance."""


@dataclass
class Diagnosis:
    """The search for the cause of one difference.

    Attributes:
        sides: the program and the module.
        origins: which functions translated the nodes.
        part: the part of the model that is wrong alone, after ``run``; None if there is none.
        comparison: the comparison of the parts, after ``run``.
    """

    sides: Sides
    origins: TranslationOrigins | None = None
    part: ComparedPart | None = None
    comparison: PartComparison | None = None

    def run(self, sample: Sample) -> tuple[Sample, Cause | None]:
        """Returns the sample, whose outputs may turn out to be inaccurate in eager, and the cause of a difference."""
        if self._is_random(sample):
            text = (
                "the module returns other values when it runs again with the same arguments, because it draws random "
                "numbers or changes a value that is no buffer, so its results cannot be compared"
            )
            return sample, Cause("random", text)
        sides = self.sides
        program = sides.captured
        if program is None:
            return sample, None
        if sides.module is not program:
            results = attempt(lambda: sides.results_of(sample, program))
            if isinstance(results, Exception):  # the export did not tell a condition of the capture
                text = f"the program that torch.export captured refuses these sizes: {first_line(results)}"
                return sample, Cause("capture", text)
            captured = sides.differences(sample, results)
            if not all(difference.ok for difference in captured):
                return sample, self._capture_cause(sample, captured)
        result = attempt(lambda: self._compare_parts(sample))
        if isinstance(result, Exception):  # it must not hide the difference
            return sample, Cause("unknown", f"the search for the first difference failed: {first_line(result)}")
        return result

    # The module and its capture

    def _is_random(self, sample: Sample) -> bool:
        """Returns whether a second run of the module, with other random numbers, gives other results."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch.initial_seed() + 1)
            return not self._agrees(sample, self.sides.results_of(sample, self.sides.module))

    def _capture_cause(self, sample: Sample, captured: Sequence[Difference]) -> Cause:
        """Returns the cause that torch.export's program differs from the module, with the module where it begins."""
        worst = next(difference for difference in captured if not difference.ok)
        text = (
            f"the program that torch.export captured differs from the module: {worst.name!r}: {worst.problem}; the "
            "translation to ONNX is not the cause"
        )
        user, exported = self.sides.module, cast("ExportedProgram", self.sides.program.exported_program)
        uncaptured = attempt(
            lambda: (
                first_uncaptured(user, functional_program(exported), sample.args, sample.kwargs, self.sides.tolerance)
                if isinstance(user, torch.nn.Module)
                else None
            )
        )
        if uncaptured is None or isinstance(uncaptured, Exception):  # a failed search must not hide the difference
            return Cause("capture", text, difference=worst)
        by = f": max {uncaptured.nearest.max_abs:.2g}" if uncaptured.nearest is not None else ""
        path = uncaptured.path.partition("@")[0]
        module = f"{path or 'the model'} ({uncaptured.module_class})"
        return Cause("capture", f"{text}; it begins in {module}{by}", path, difference=worst)

    # The parts of the ONNX model

    def _compare_parts(self, sample: Sample) -> tuple[Sample, Cause | None]:
        comparison = self.comparison = PartComparison(self.sides, sample.args, sample.kwargs)
        largest: ComparedPart | None = None
        tie: ComparedPart | None = None
        for compared in comparison:
            if compared.is_tie:
                tie = tie or compared
                continue
            if not compared.difference.ok:
                self.part = compared
                return sample, part_cause(compared, self.origins, sample.sizes)
            if largest is None or compared.difference.max_rel > largest.difference.max_rel:
                largest = compared
        if not self._agrees(sample, comparison.named_results()):
            text = (
                "the captured program differs from the module if its writes in place are replaced by new values; the "
                "ONNX model cannot write to arguments that share memory"
            )
            return sample, Cause("functionalization", text)
        if tie is not None and not comparison.failures:
            origin = origin_of(tie.part.node, tie.inside, self.origins, tie.part.nodes)
            text = (
                f"PyTorch and the ONNX model select other ones of equal elements at {origin}, so what follows differs; "
                f"each part agrees alone{origin.your_line}"
            )
            return sample, Cause("ties", text, origin.module, origin.node)
        if comparison.is_complete:
            sample = _judged(sample, comparison.exact_results())
        if sample.ok:
            return sample, None
        if self._agrees_unoptimized(sample):
            text = "ONNX Runtime's graph optimizations cause the difference: without them the results agree"
            return sample, Cause("runtime", text)
        return sample, _rounding_cause(comparison, largest, self.origins)

    def _agrees_unoptimized(self, sample: Sample) -> bool:
        """Returns whether the results agree if ONNX Runtime does not optimize the graph."""
        sides = self.sides
        run = onnx_runner(sides.program, sides.provider, optimized=False)
        return Sides(sides.program, sides.module, sides.tolerance, run=run).sample(sample.args, sample.kwargs).ok

    def _agrees(self, sample: Sample, named: Mapping[str, Any]) -> bool:
        """Returns whether other outputs, by name, agree with the module's in a sample."""
        return all(difference.ok for difference in self.sides.differences(sample, named))


def _judged(sample: Sample, exact: Mapping[str, Any]) -> Sample:
    """Returns the sample, in which an output that differs may be inaccurate in eager; see the head of this file.

    Args:
        sample: the sample, of which no part is wrong alone.
        exact: the outputs of the captured program in float64, by name; empty if they are unknown.
    """
    judged = []
    for (name, expected, actual), difference in zip(sample.pairs, sample.outputs, strict=True):
        new = difference
        if not difference.ok and name in exact:
            eager, onnx = errors_in_double(expected, actual, exact[name])
            new = inaccurate_in_eager(difference, eager, onnx) if onnx <= ERROR_FACTOR * eager else difference
        judged.append(new)
    return replace(sample, outputs=tuple(judged))


def part_cause(compared: ComparedPart, origins: TranslationOrigins | None, sizes: str) -> Cause:
    """Returns the cause that a part of the model computes a wrong value."""
    origin = origin_of(compared.part.node, compared.inside, origins, compared.part.nodes)
    difference = compared.difference
    measured = f"max {difference.max_abs:.2g} ({difference.tolerance:.1g} allowed)"
    if difference.nonfinite or not difference.max_abs > difference.tolerance:
        measured = difference.problem
    if compared.errors is not None and compared.errors[0] > difference.tolerance:  # PyTorch's value is inaccurate too
        measured += "; in float64, the error of PyTorch is {:.2g}, that of ONNX {:.2g}".format(*compared.errors)
    at = f" at {sizes}" if sizes else ""
    text = f"first differs at {origin}{at}: {measured}{origin.your_line}"
    return Cause("translation", text, origin.module, origin.node, difference)


def _rounding_cause(
    comparison: PartComparison, largest: ComparedPart | None, origins: TranslationOrigins | None
) -> Cause:
    if comparison.failures:
        name, reason = next(iter(comparison.failures.items()))
        text = (
            f"no value differs that could be compared; {len(comparison.failures)} could not, such as {name!r}: {reason}"
        )
        return Cause("unknown", text)
    if largest is None:
        return Cause("unknown", "the ONNX model has no values of FX nodes to compare")
    origin = origin_of(largest.part.node, (largest.part.node,), origins)
    difference = largest.difference
    text = "no value differs if it is computed from PyTorch's values, so small differences add up"
    text = f"{text}; the largest is at {origin}: max {difference.max_abs:.2g}{origin.your_line}"
    return Cause("rounding", text, origin.module, origin.node, difference)


# ---------------------------------------------------------------- the module where a capture differs

_GROUP_BYTES = 256 * 1024**2
"""The size of the results of modules that are in memory at once."""


@dataclass
class CalledModule:
    """One call of a module.

    Attributes:
        path: the path of the module; ``path@1`` for its second call, as torch.export names it.
        module_class: the name of its class.
        results: the tensors that it returned and that the captured program has not computed.
        nearest: the smallest difference of a value of the program from the first of these; None if there is no such
            value.
    """

    path: str
    module_class: str
    results: list[torch.Tensor] = field(default_factory=list)
    nearest: Difference | None = None


def first_uncaptured(
    module: torch.nn.Module,
    program: AtenProgram,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    tolerance: Tolerance,
) -> CalledModule | None:
    """Returns the first call of a module, in the order in which calls end, with a result that the program lacks.

    The results of the calls are compared in groups. For each group, both sides run once more.

    Args:
        module: the user's module.
        program: the captured program without writes in place.
        args: the positional arguments.
        kwargs: the keyword arguments.
        tolerance: the allowed difference.
    """
    graph = graph_module(program)
    done = 0
    while True:
        calls = _calls(module, args, kwargs, done)
        if not calls:
            return None
        done += len(calls)
        for _, value in executed(graph, lifted_arguments(program.exported_program, args, dict(kwargs))):
            for tensor in pytree.tree_leaves(value):
                if isinstance(tensor, torch.Tensor):
                    _remove_equal(calls, tensor, tolerance)
        uncaptured = next((call for call in calls if call.results), None)
        if uncaptured is not None:
            return uncaptured


def _calls(module: torch.nn.Module, args: Any, kwargs: Any, skipped: int) -> list[CalledModule]:
    """Runs the module and returns the calls after the first ``skipped`` ones, as many as fit into a group."""
    calls: list[CalledModule] = []
    counts = Counter[str]()
    size = 0

    def watch(path: str, called: torch.nn.Module, call: Callable[[], Any]) -> Any:
        nonlocal size, skipped
        result = call()
        number = counts[path]
        counts[path] += 1
        skipped -= 1
        if skipped < 0 and size < _GROUP_BYTES:
            leaves = pytree.tree_leaves(result)
            tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and not leaf.is_nested]
            size += sum(tensor.nbytes for tensor in tensors)
            calls.append(CalledModule(f"{path}@{number}" if number else path, type(called).__name__, copied(tensors)))
        return result

    inner = [(path, submodule) for path, submodule in module.named_modules() if submodule is not module]
    watches = {
        submodule: partial(watch, path, submodule)
        for path, submodule in inner
        if not isinstance(submodule, torch.jit.ScriptModule)
    }
    args, kwargs = copied((tuple(args), dict(kwargs)))
    with CAPTURE_LOCK, torch.no_grad(), watch_calls(watches):
        module(*args, **kwargs)
    return calls


def _remove_equal(calls: Sequence[CalledModule], value: torch.Tensor, tolerance: Tolerance) -> None:
    """Removes the results that a value of the captured program is equal to."""
    for call in calls:
        for index, result in enumerate(call.results):
            if result.shape != value.shape or result.dtype != value.dtype:
                continue
            difference = compare(call.path, result, value, tolerance)
            if difference.ok:
                del call.results[index]
                break
            if index == 0 and (call.nearest is None or difference.max_abs < call.nearest.max_abs):
                call.nearest = difference
