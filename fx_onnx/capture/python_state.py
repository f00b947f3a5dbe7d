"""Finds values of Python that a forward changes: each call of the program starts with the values before the capture.

``python_values.py`` tells which values are compared.

A change alone is no problem: a forward may store the sizes of its input, or count its calls. ``state_reads.py`` tells
from the code whether a later call may compute with what an earlier one has left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from fx_onnx.capture.patches.data_conditions import is_traced
from fx_onnx.capture.python_values import RANDOM, Place, Values, changed_leaves, kind_of_change, python_values
from fx_onnx.capture.request import Request
from fx_onnx.capture.state_reads import Code, line_of_state, origin_of

__all__ = ["ChangedValue", "frozen_values", "record_changed_values"]


class ChangedValue(NamedTuple):
    """A value that a forward changes and that a later call may read.

    Attributes:
        place: where it is.
        kind: what the new value is.
        is_inside: whether a container or an object holds it.
        line: the first line that changes it, as ``(file:line: code)`` after a space; empty if it is not known.
    """

    place: Place
    kind: str
    is_inside: bool
    line: str


_MAX_STATE = 2**20  # elements
_REMEDIES = {
    "tensor": "Register the tensor as a buffer.",
    "Python number": "Keep the number in a buffer.",
    "NumPy array": "Register a tensor as a buffer.",
    "Python value": "Pass the value as an argument.",
}


@contextmanager
def record_changed_values(model: torch.nn.Module) -> Iterator[list[ChangedValue]]:
    """Yields the list that receives the values that the forward changes within the context and may read later.

    torch.export restores the attributes after the forward, so a hook compares them before it returns. It leaves those
    that the forward creates; traced tensors, which have no values, are removed, and so are buffers that the forward
    makes, which the program does not have. A tensor into which the forward writes what depends on no input, as in
    ``self.calls.add_(1)``, has a new value after the trace; it is restored.
    """
    known = {name for name, _ in model.named_buffers(remove_duplicate=False)}
    buffers = [(module, dict(module._buffers)) for module in model.modules()]
    before, changed = python_values(model, known), list[ChangedValue]()

    def compare(*_: Any) -> None:
        changed.extend(_changed_values(model, before, python_values(model, known)))
        for module, own in buffers:
            for name in module._buffers.keys() - own.keys():
                del module._buffers[name]
            module._buffers.update({name: None for name, value in own.items() if value is None})

    all_values = (value for each in before.values() for value in each.values())
    tensors = [(value, value.detach().clone()) for value in all_values if _may_be_state(value)]
    hook = model.register_forward_hook(compare)
    try:
        yield changed
    finally:
        hook.remove()
        for place, leaves in python_values(model, known).items():
            found = any(isinstance(leaf, torch.Tensor) and is_traced(leaf) for leaf in leaves.values())
            if found and place not in before and isinstance(place.owner, str):
                delattr(model.get_submodule(place.owner), place.name)
        for tensor, old in tensors:
            if not torch.equal(tensor, old):
                tensor.detach().copy_(old)


def _changed_values(
    model: torch.nn.Module, before: Mapping[Place, Values], after: Mapping[Place, Values]
) -> Iterator[ChangedValue]:
    """Yields the values that have changed and that a later call may read. One that the forward has made counts too."""
    changes = {place: changed_leaves(before.get(place, {}), after.get(place, {})) for place in {**before, **after}}
    changes = {place: found for place, found in changes.items() if found}
    code = Code(model, {place.name for place in changes}) if changes.keys() - {*RANDOM} else None
    for place, found in changes.items():
        line: str | None = ""
        if code is not None and place not in RANDOM:
            line = line_of_state(code, place, origin_of(model, (now for _, now in found)))
        if line is not None:
            is_inside = any(() not in each[place] for each in (before, after) if place in each)
            yield ChangedValue(place, kind_of_change(found[0]), is_inside, line)


def _may_be_state(value: Any) -> bool:
    """Returns whether a tensor has values, and is small enough to copy: larger ones are weights, not counters."""
    is_plain = type(value) is torch.Tensor and value.layout == torch.strided and not value.is_quantized
    return is_plain and not value.is_meta and value.numel() <= _MAX_STATE


def frozen_values(request: Request, changed: Iterable[ChangedValue]) -> Iterator[str]:
    """Yields one sentence for each value that the forward changes and on which its later results may depend."""
    for place, kind, is_inside, line in changed:
        if place in RANDOM:
            yield (
                f"The results of the forward may depend on numbers of {place.name}, and each call of the program "
                "computes with those that the export drew. Draw them with torch.rand."
            )
            continue
        what = f"{'a' if is_inside else 'the'} {kind} {'in ' if is_inside else ''}{place.name!r}"
        yield (
            f"The forward changes {what} of {place}, on which the results of the next call may depend{line}; "
            f"each call of the program starts with the value before the export. {_REMEDIES[kind]}"
        )
