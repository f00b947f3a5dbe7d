"""Finds attributes that a forward changes: each call of the program starts with the values before the capture.

The attributes are numbers, strings, tensors that are no buffers, and containers of Python that hold some.

A change alone is no problem: a forward may store the sizes of its input, or count its calls. So the forward runs again
where an attribute has changed. Its results differ only if they depend on a value that a call leaves for the next one.
"""

from __future__ import annotations

import inspect
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from fx_onnx.capture.eager_model import EagerModel, eager_model, tensor_attributes
from fx_onnx.capture.patches.data_conditions import is_traced
from fx_onnx.capture.request import Request
from fx_onnx.core.source_lines import line_text
from fx_onnx.core.torch_private import FakeTensor, pytree

__all__ = ["ChangedAttribute", "frozen_attributes", "record_changed_attributes"]


class ChangedAttribute(NamedTuple):
    """An attribute that a forward changes: the path of the module, and the name. ``kind`` names the new value."""

    path: str
    name: str
    kind: str


_VALUES = (int, float, bool, str, type(None), torch.Tensor)
_CONTAINERS = (list, tuple, dict, set, deque)
_NESTED = 3
"""How deep containers are compared: a dict of lists of dicts."""
_MISSING = object()
_MAX_STATE = 2**20  # elements
_COMPARED = (*_CONTAINERS, *_VALUES)
# The attributes that every module has, such as the dicts of its hooks.
_OWN_ATTRIBUTES = frozenset(vars(torch.nn.Module()))
_CHANGING_METHODS = "add|append|appendleft|extend|insert|pop|popitem|update|setdefault|clear|reverse|sort"
_REMEDIES = {
    "tensor": "Register the tensor as a buffer.",
    "Python number": "Keep the number in a buffer.",
    "Python value": "Pass the value as an argument.",
}


@contextmanager
def record_changed_attributes(model: torch.nn.Module) -> Iterator[list[ChangedAttribute]]:
    """Yields the list that receives the attributes that the forward changes within the context.

    torch.export restores the attributes after the forward, so a hook compares them before it returns. It leaves those
    that the forward creates; traced tensors, which have no values, are removed. A tensor into which the forward writes
    what depends on no input, as in ``self.calls.add_(1)``, has a new value after the trace; it is restored.
    """
    before, changed = _attributes(model), list[ChangedAttribute]()

    def compare(module: torch.nn.Module, *_: Any) -> None:
        after = _attributes(module)
        for path, name in {**before, **_created(before, after)}:
            found = _first_change(before.get((path, name), _MISSING), after.get((path, name), _MISSING))
            if found is not None:
                changed.append(ChangedAttribute(path, name, found))

    tensors = [(tensor, tensor.detach().clone()) for tensor in _tensors(before) if _may_be_state(tensor)]
    hook = model.register_forward_hook(compare)
    try:
        yield changed
    finally:
        hook.remove()
        for path, name in _created(before, _attributes(model)):
            delattr(model.get_submodule(path), name)
        for tensor, values in tensors:
            if not torch.equal(tensor, values):
                tensor.detach().copy_(values)


def _created(before: Mapping[tuple[str, str], Any], after: Mapping[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    """Returns the attributes that the forward has created and that hold traced tensors.

    Others may belong to a lasting change of the module, such as a mark that hooks have been installed.
    """
    created = {key: after[key] for key in after.keys() - before.keys()}
    return {key: value for key, value in created.items() if any(is_traced(t) for t in _tensors({"": value}))}


def _attributes(model: torch.nn.Module) -> dict[tuple[str, str], Any]:
    """Returns the attributes of the modules that are values or hold some, by the path of the module and the name."""
    return {
        (path, name): _values_of(value)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if name not in _OWN_ATTRIBUTES and isinstance(value, _COMPARED)
    }


def _values_of(value: Any, depth: int = 0) -> Any:
    """Returns a value as it is, and a dict of the values that are items of a container."""
    if not isinstance(value, _CONTAINERS):
        return value
    items: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else enumerate(value)
    if isinstance(value, set):
        items = ((item, item) for item in value)
    kept = _COMPARED if depth < _NESTED else _VALUES
    return {key: _values_of(item, depth + 1) for key, item in items if isinstance(item, kept)}


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors in what ``_attributes`` returns."""
    for each in values.values():
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, dict):
            yield from _tensors(each)


def _may_be_state(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor has values, and is small enough to copy: larger ones are weights, not counters."""
    is_plain = type(tensor) is torch.Tensor and tensor.layout == torch.strided and not tensor.is_quantized
    return is_plain and not tensor.is_meta and tensor.numel() <= _MAX_STATE


def _first_change(value: Any, now: Any) -> str | None:
    """Returns the kind of the value that changed, of the first one in a container; None if none did."""
    if isinstance(value, dict) and isinstance(now, dict):
        changes = (_first_change(value.get(key, _MISSING), now.get(key, _MISSING)) for key in {**value, **now})
        return next((found for found in changes if found is not None), None)
    if isinstance(value, dict) or isinstance(now, dict):
        return "Python value"
    if isinstance(value, torch.Tensor) or isinstance(now, torch.Tensor):
        return None if value is now else "tensor"
    if type(value) is type(now) and (value == now or value != value):  # NaN differs from itself
        return None
    return "Python number" if isinstance(now, (int, float)) or isinstance(value, (int, float)) else "Python value"


def frozen_attributes(request: Request, changed: Iterable[ChangedAttribute]) -> Iterator[str]:
    """Yields one sentence for each attribute that the forward changes and on which its later results depend.

    Args:
        request: What was captured.
        changed: The attributes that changed during the capture.
    """
    model = request.model
    if changed and isinstance(model, torch.nn.Module) and _results_change(request):
        for path, name, kind in changed:
            module = model.get_submodule(path)
            owner = f"{path} ({type(module).__name__})" if path else type(module).__name__
            is_container = isinstance(vars(module).get(name), _CONTAINERS)
            what = f"{'a' if is_container else 'the'} {kind} {'in ' if is_container else ''}{name!r}"
            yield (
                f"The forward changes {what} of {owner}, on which the results of the next call depend"
                f"{_place(module, name)}; each call of the program starts with the value before the export. "
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
    try:
        _call(model, request, other=True)
        first, second = _call(fresh, request), _call(model, request)
    except Exception:  # the forward is the user's code
        return False
    return len(first) != len(second) or not all(map(_is_equal, first, second))


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


def _is_equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.shape == second.shape and torch.allclose(first, second, rtol=1e-5, atol=1e-6, equal_nan=True)


def _place(module: torch.nn.Module, name: str) -> str:
    """Returns ` (file:line: code)` of the first line of the forward that changes the attribute; empty if none does."""
    try:
        lines, start = inspect.getsourcelines(type(module).forward)
        file = inspect.getsourcefile(type(module).forward)
        instance = next(iter(inspect.signature(type(module).forward).parameters))
    except (OSError, TypeError, ValueError, StopIteration):  # the code has no file
        return ""
    assignment = r"(?:\s*\[.*\])?\s*(?:[-+*/%&|^@]|//|\*\*|<<|>>)?=(?!=)"
    pattern = rf"\b{instance}\.{name}(?:{assignment}|\.(?:{_CHANGING_METHODS})\()"
    found = next((number for number, line in enumerate(lines, start) if re.search(pattern, line)), None)
    return "" if found is None or file is None else f" {line_text(file, found)}"
