"""Finds the module whose results torch.export's captured program does not compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.core.threads import CAPTURE_LOCK
from fx_onnx.core.torch_private import pytree
from fx_onnx.program.verification.fx_slices import executed, graph_module
from fx_onnx.program.verification.reference_runs import copied, lifted_arguments
from fx_onnx.program.verification.tensor_comparison import Difference, Tolerance, compare

__all__ = ["CalledModule", "first_uncaptured"]

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
        found = next((call for call in calls if call.results), None)
        if found is not None:
            return found


def _calls(module: torch.nn.Module, args: Any, kwargs: Any, skipped: int) -> list[CalledModule]:
    """Runs the module and returns the calls after the first ``skipped`` ones, as many as fit into a group."""
    calls: list[CalledModule] = []
    size = 0

    def ended(path: str, called: torch.nn.Module, result: Any) -> None:
        nonlocal size, skipped
        skipped -= 1
        if skipped >= 0 or size >= _GROUP_BYTES:
            return
        tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and not leaf.is_nested]
        size += sum(tensor.nbytes for tensor in tensors)
        calls.append(CalledModule(path, type(called).__name__, copied(tensors)))

    args, kwargs = copied((tuple(args), dict(kwargs)))
    with CAPTURE_LOCK, torch.no_grad(), _observed(module, ended):
        module(*args, **kwargs)
    return calls


@contextmanager
def _observed(module: torch.nn.Module, ended: Any) -> Iterator[None]:
    """Calls ``ended`` with the path, the module and the result of each call of a submodule."""
    counts: Counter[str] = Counter()
    handles = []

    def hook(path: str) -> Any:
        def observe(called: torch.nn.Module, args: Any, result: Any) -> None:
            number = counts[path]
            counts[path] += 1
            ended(f"{path}@{number}" if number else path, called, result)

        return observe

    try:
        for path, each in module.named_modules():
            if each is not module and not isinstance(each, torch.jit.ScriptModule):
                handles.append(each.register_forward_hook(hook(path)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _remove_equal(calls: Sequence[CalledModule], value: torch.Tensor, tolerance: Tolerance) -> None:
    """Removes the results that a value of the captured program is equal to."""
    for call in calls:
        for place, result in enumerate(call.results):
            if result.shape != value.shape or result.dtype != value.dtype:
                continue
            difference = compare(call.path, result, value, tolerance)
            if difference.ok:
                del call.results[place]
                break
            if place == 0 and (call.nearest is None or difference.max_abs < call.nearest.max_abs):
                call.nearest = difference
