"""Finds values of Python that a forward changes and on which the results of its later calls depend.

Each call of the program starts with the values before the capture. ``python_values.py`` tells which values are
compared, and ``state_calls.py`` whether results depend on them.
"""

from __future__ import annotations

import dis
import inspect
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any, NamedTuple

import torch

from fx_onnx.capture.patches.module_hooks import watch_calls
from fx_onnx.capture.python_values import RANDOM, Place, PythonState, changed_leaves, kind_of_change, names_in
from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.messages.source_lines import is_internal, is_library
from fx_onnx.onnx_model import dtypes

__all__ = ["ChangedValue", "ChangedValues", "compares_identity", "record_changed_values"]


class ChangedValue(NamedTuple):
    """A value that a forward changes and on which the results of later calls depend.

    Attributes:
        place: where it is.
        kind: what the new value is.
        is_inside: whether a container or an object holds it.
        line: the line that changes it, as ``(file:line: code)`` after a space; empty if it is not known.
    """

    place: Place
    kind: str
    is_inside: bool
    line: str = ""

    def __str__(self) -> str:
        if self.place in RANDOM:
            return (
                f"The results of the forward may depend on numbers of {self.place.name}, and each call of the program "
                "computes with those that the export drew. Draw them with torch.rand."
            )
        what = f"{'a' if self.is_inside else 'the'} {self.kind} {'in ' if self.is_inside else ''}{self.place.name!r}"
        return (
            f"The forward changes {what} of {self.place}, on which the results of the next call may depend{self.line}; "
            f"each call of the program starts with the value before the export. {_REMEDIES[self.kind]}"
        )


_MAX_STATE = 2**20  # the elements of a tensor that is copied; larger ones are weights
_REMEDIES = {
    "tensor": "Register the tensor as a buffer.",
    "Python number": "Keep the number in a buffer.",
    "module": "Replace the module before the export.",
    "NumPy array": "Register a tensor as a buffer.",
    "Python value": "Pass the value as an argument.",
}


class ChangedValues:
    """The values that a trace of a model has changed.

    Attributes:
        model: the model.
        state: the values before the trace.
        values: what changed.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        """Reads the values before the trace."""
        buffers = {name for name, _ in model.named_buffers(remove_duplicate=False)}
        self.model, self.state, self.values = model, PythonState(model, buffers), list[ChangedValue]()

    def compare(self) -> None:
        """Keeps the values that differ from before. One that the forward has made counts too."""
        before, after = self.state.values, self.state.again().values
        changes = {place: changed_leaves(before.get(place, {}), after.get(place, {})) for place in {**before, **after}}
        replaced = tuple(
            f"{owner}.{name}.".removeprefix(".")
            for (owner, name, _), pairs in changes.items()
            if any(isinstance(value, torch.nn.Module) for pair in pairs for value in pair)
        )
        self.values = [
            ChangedValue(place, kind_of_change(pairs[0]), {*before.get(place, ()), *after.get(place, ())} != {()})
            for place, pairs in changes.items()
            if pairs and not f"{place.owner}.".startswith(replaced)
        ]


@contextmanager
def record_changed_values(model: torch.nn.Module) -> Iterator[ChangedValues]:
    """Yields what receives the values that the forward changes within the context, and restores them at the end.

    torch.export restores the attributes after the call of the model, so they are compared when it ends. Buffers that
    the forward makes are removed then, because the program does not have them. A tensor into which the forward writes
    what depends on no input, as in ``self.calls.add_(1)``, has a new value after the trace.

    Raises:
        CaptureError: The forward has written so into a large tensor, of which no copy was made.
    """
    changed, is_traced_call = ChangedValues(model), True
    buffers = [(module, dict(module._buffers)) for module in model.modules()]

    def compare(call: Callable[[], Any]) -> Any:
        nonlocal is_traced_call
        result = call()
        if not is_traced_call:  # the calls after the trace are trials
            return result
        is_traced_call = False
        changed.compare()
        for module, own in buffers:
            for name in module._buffers.keys() - own.keys():
                del module._buffers[name]
            module._buffers.update({name: None for name, value in own.items() if value is None})
        return result

    places = changed.state.values.items()
    tensors = [(place, value) for place, leaves in places for value in leaves.values() if _may_be_state(value)]
    copies = [(tensor, tensor.detach().clone()) for _, tensor in tensors if tensor.numel() <= _MAX_STATE]
    large = [(*item, _version_of(item[1])) for item in tensors if item[1].numel() > _MAX_STATE]
    try:
        with watch_calls({model: compare}):
            yield changed
        for place, tensor, version in large:
            if _version_of(tensor) != version:
                raise CaptureError(
                    f"The forward writes to the tensor {place.name!r} of {place}, which is no buffer and has "
                    f"{tensor.numel():,} elements, and the capture has changed its values; register it as a buffer.",
                    id=MessageId.PYTHON_STATE,
                )
    finally:
        changed.state.restore()
        for tensor, old in copies:
            if not torch.equal(tensor, old):
                tensor.detach().copy_(old)


def _version_of(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version  # which nothing but inference mode may write to


def _may_be_state(value: Any) -> bool:
    """Returns whether a value is a tensor with values that torch compares."""
    is_plain = type(value) is torch.Tensor and value.layout == torch.strided and not value.is_quantized
    return is_plain and not value.is_meta and not dtypes.is_packed(value.dtype)


# --- what the code asks -----------------------------------------------------------------------------------------------


def compares_identity(model: torch.nn.Module) -> bool:
    """Returns whether the model's code may ask whether a value is True, False or a number, as in ``x.any() is True``.

    Strict mode answers no for each number that depends on data.
    """
    owners = [*model.modules(), *(value for module in model.modules() for value in vars(module).values())]
    kinds = {base for owner in owners for base in type(owner).__mro__ if not is_library(base.__module__)}
    attributes = [value for owner in (*kinds, *model.modules()) for value in vars(owner).values()]
    waiting = [inspect.unwrap(getattr(item, "fget", None) or getattr(item, "__func__", item)) for item in attributes]
    codes = dict[CodeType, None]()
    while waiting:
        function = waiting.pop()
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType) and code not in codes and not is_internal(code.co_filename):
            codes[code] = None
            waiting += [function.__globals__[name] for name in names_in(code) & function.__globals__.keys()]
    return any(map(_compares_identity, codes))


def _compares_identity(code: CodeType) -> bool:
    return any(
        second.opname == "IS_OP" and first.opname == "LOAD_CONST" and isinstance(first.argval, (bool, int, float))
        for first, second in itertools.pairwise(dis.get_instructions(code))
    ) or any(_compares_identity(constant) for constant in code.co_consts if isinstance(constant, CodeType))
