"""Finds values of Python that a forward changes: each call of the program starts with the values before the capture.

``python_values.py`` tells which values are compared.

A change alone is no problem: a forward may store the sizes of its input, or count its calls. So the forward runs again
where a value has changed. Its results differ only if they depend on a value that a call leaves for the next one.
"""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from fx_onnx.capture.eager_model import EagerModel, eager_model, tensor_attributes
from fx_onnx.capture.patches.data_conditions import is_traced
from fx_onnx.capture.python_values import RANDOM, Place, first_change, is_container, python_values, tensors_in
from fx_onnx.capture.request import Request
from fx_onnx.core.source_lines import line_text
from fx_onnx.core.torch_private import FakeTensor, pytree

__all__ = ["ChangedValue", "frozen_values", "record_changed_values"]


class ChangedValue(NamedTuple):
    """A value that a forward changes.

    Attributes:
        place: where it is.
        kind: what the new value is.
        is_inside: whether a container or an object holds it.
        is_new: whether the forward makes the attribute, which may be a mark that it has been called.
    """

    place: Place
    kind: str
    is_inside: bool
    is_new: bool


_CALLS = 3
"""How many further calls are compared while values keep changing; a branch may depend on the number of calls."""
_MAX_STATE = 2**20  # elements
_CHANGING_METHODS = "add|append|appendleft|extend|insert|pop|popitem|update|setdefault|clear|reverse|sort|fill"
_REMEDIES = {
    "tensor": "Register the tensor as a buffer.",
    "Python number": "Keep the number in a buffer.",
    "NumPy array": "Register a tensor as a buffer.",
    "Python value": "Pass the value as an argument.",
}


@contextmanager
def record_changed_values(model: torch.nn.Module) -> Iterator[list[ChangedValue]]:
    """Yields the list that receives the values that the forward changes within the context.

    torch.export restores the attributes after the forward, so a hook compares them before it returns. It leaves those
    that the forward creates; traced tensors, which have no values, are removed. A tensor into which the forward writes
    what depends on no input, as in ``self.calls.add_(1)``, has a new value after the trace; it is restored.
    """
    before, changed = python_values(model), list[ChangedValue]()

    def compare(*_: Any) -> None:
        changed.extend(_changes(before, python_values(model)))

    tensors = [(tensor, tensor.detach().clone()) for tensor in tensors_in(before) if _may_be_state(tensor)]
    hook = model.register_forward_hook(compare)
    try:
        yield changed
    finally:
        hook.remove()
        for place, value in python_values(model).items():
            if place not in before and isinstance(place.owner, str) and _is_traced(value):
                delattr(model.get_submodule(place.owner), place.name)
        for tensor, values in tensors:
            if not torch.equal(tensor, values):
                tensor.detach().copy_(values)


def _changes(before: Mapping[Place, Any], after: Mapping[Place, Any]) -> Iterator[ChangedValue]:
    """Yields the values that have changed. One that the forward has made counts too."""
    for place in {**before, **after}:
        values = [each[place] for each in (before, after) if place in each]
        kind = first_change(*values)
        if kind is not None:
            yield ChangedValue(place, kind, any(map(is_container, values)), place not in before and kind != "tensor")


def _is_traced(value: Any) -> bool:
    return any(map(is_traced, tensors_in({"": value})))


def _may_be_state(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor has values, and is small enough to copy: larger ones are weights, not counters."""
    is_plain = type(tensor) is torch.Tensor and tensor.layout == torch.strided and not tensor.is_quantized
    return is_plain and not tensor.is_meta and tensor.numel() <= _MAX_STATE


def frozen_values(request: Request, changed: Iterable[ChangedValue]) -> Iterator[str]:
    """Yields one sentence for each value that the forward changes and on which its later results depend.

    Args:
        request: What was captured.
        changed: The values that changed during the capture.
    """
    if changed and isinstance(request.model, torch.nn.Module) and _results_change(request):
        reported = [each for each in changed if not each.is_new] or changed
        for place, kind, is_inside, _ in reported:
            if place in RANDOM:
                yield (
                    f"The results of the forward depend on numbers of {place.name}, and each call of the program "
                    "computes with those that the export drew. Draw them with torch.rand."
                )
                continue
            what = f"{'a' if is_inside else 'the'} {kind} {'in ' if is_inside else ''}{place.name!r}"
            yield (
                f"The forward changes {what} of {place}, on which the results of the next call depend"
                f"{_line(place)}; each call of the program starts with the value before the export. "
                f"{_REMEDIES[kind]}"
            )


def _results_change(request: Request) -> bool:
    """Returns whether the results of a call are others after another call, although the buffers are the same.

    The other call gets half of each float, and integers in another order, so that a value that only the first call
    computes is found too. The integers stay in the same range, as the indices of an embedding must.
    """
    model, fresh = eager_model(request), eager_model(request)
    leaves = pytree.tree_leaves((request.args, request.kwargs))
    if model is None or fresh is None:
        return False
    given = [*leaves, *model.parameters(), *model.buffers()]
    if any(isinstance(each, FakeTensor) or getattr(each, "is_meta", False) for each in given):
        return False
    generators = random.getstate(), np.random.get_state()
    try:
        _call(model, request, other=True)
        first = _call(fresh, request)
        return any(not _are_equal(first, later) for later in _later_calls(model, request))
    except Exception:  # the forward is the user's code
        return False
    finally:
        random.setstate(generators[0])
        np.random.set_state(generators[1])


def _later_calls(model: EagerModel, request: Request) -> Iterator[list[torch.Tensor]]:
    """Yields the results of calls with the same arguments, until no value but the generators' changes."""
    for _ in range(_CALLS):
        before = python_values(model.module)
        yield _call(model, request)
        if all(each.place in RANDOM for each in _changes(before, python_values(model.module))):
            return


def _call(eager: EagerModel, request: Request, *, other: bool = False) -> list[torch.Tensor]:
    """Runs the copy of the module on copies of the arguments and restores its buffers."""

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach().clone()
        if other and tensor.is_floating_point():
            return tensor / 2
        return tensor.flatten().flip(0).reshape(tensor.shape) if other else tensor

    # A capture makes a tensor that is written in place a state, even if it is no buffer.
    states = [*(buffer for _, buffer in eager.named_buffers()), *tensor_attributes(eager.module)]
    before = [(state, state.clone()) for state in states]
    args, kwargs = pytree.tree_map_only(torch.Tensor, copied, (request.args, request.kwargs))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        result = eager(*args, **kwargs)
        found = [leaf.clone() for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        for state, values in before:
            state.copy_(values)
    return found


def _are_equal(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return len(first) == len(second) and all(map(_is_equal, first, second))


def _is_equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.shape == second.shape and torch.allclose(first, second, rtol=1e-5, atol=1e-6, equal_nan=True)


def _line(place: Place) -> str:
    """Returns ` (file:line: code)` of the first line of the class that changes the value; empty if none does."""
    try:
        lines, start = inspect.getsourcelines(place.kind.__dict__.get("forward", place.kind))
        file = inspect.getsourcefile(place.kind)
    except (OSError, TypeError):  # the code has no file
        return ""
    assignment = r"(?:\s*\[.*\]|\.\w+)*\s*(?:[-+*/%&|^@]|//|\*\*|<<|>>)?=(?!=)"
    pattern = rf"\b{place.name}(?:{assignment}|(?:\.\w+)*\.(?:{_CHANGING_METHODS})\()|\bnext\([\w.]*\b{place.name}\)"
    found = next((number for number, line in enumerate(lines, start) if re.search(pattern, line)), None)
    return "" if found is None or file is None else f" {line_text(file, found)}"
