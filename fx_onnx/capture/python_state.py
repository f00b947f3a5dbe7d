"""Finds Python numbers of a module that its forward changes: the program has the value that they have in the capture.

Numbers are attributes of the modules, or items of lists, tuples and dicts that are attributes.

A change alone is no problem: a forward may store the sizes of its input, or count its calls. So the forward runs twice
where a number has changed. Its results differ only if they depend on a value that a call leaves for the next one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fx_onnx.capture.eager_model import EagerModel, eager_model
from fx_onnx.capture.request import Request
from fx_onnx.core.source_lines import line_text
from fx_onnx.core.torch_private import FakeTensor, pytree

__all__ = ["frozen_numbers", "record_changed_numbers"]


_NUMBERS = (int, float, bool)
_CONTAINERS = (list, tuple, dict)
# The attributes that every module has, such as the dicts of its hooks.
_OWN_ATTRIBUTES = frozenset(vars(torch.nn.Module()))
_CHANGING_METHODS = "append|extend|insert|pop|popitem|update|setdefault|clear|reverse|sort"


@contextmanager
def record_changed_numbers(model: torch.nn.Module) -> Iterator[dict[tuple[str, str], None]]:
    """Yields the set that receives the numbers that the forward changes within the context: (module path, name).

    torch.export restores the attributes after the forward, so a hook compares them before it returns.
    """
    before, changed = _python_numbers(model), dict[tuple[str, str], None]()

    def compare(module: torch.nn.Module, *_: Any) -> None:
        changed.update((key, None) for key, value in before.items() if not _is_same(value, _now(module, key)))

    hook = model.register_forward_hook(compare)
    try:
        yield changed
    finally:
        hook.remove()


def _python_numbers(model: torch.nn.Module) -> dict[tuple[str, str], Any]:
    """Returns the attributes of the modules that are numbers or hold some, by the path of the module and the name."""
    return {
        (path, name): _numbers_of(value)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if (type(value) in _NUMBERS or isinstance(value, _CONTAINERS)) and name not in _OWN_ATTRIBUTES
    }


def _numbers_of(value: Any) -> Any:
    """Returns a number as it is, and a dict of the numbers that are items of a list, tuple or dict."""
    if not isinstance(value, _CONTAINERS):
        return value
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {key: item for key, item in items if type(item) in _NUMBERS}


def frozen_numbers(request: Request, changed: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yields one sentence for each number that the forward changes and on which its later results depend.

    Args:
        request: What was captured.
        changed: The numbers that changed during the capture.
    """
    model = request.model
    if changed and isinstance(model, torch.nn.Module) and _results_change(request, model):
        for path, name in changed:
            module = model.get_submodule(path)
            owner = f"{path} ({type(module).__name__})" if path else type(module).__name__
            yield (
                f"The forward changes {_description(module, name)} of {owner}, on which the results of the next call "
                f"depend{_place(module, name)}; the program has the value of the export. Keep the number in a buffer."
            )


def _description(module: torch.nn.Module, name: str) -> str:
    is_container = isinstance(vars(module).get(name), _CONTAINERS)
    return f"{'a' if is_container else 'the'} Python number {'in ' if is_container else ''}{name!r}"


def _now(model: Any, key: tuple[str, str]) -> Any:
    path, name = key
    return _numbers_of(vars(model.get_submodule(path)).get(name))


def _is_same(value: Any, now: Any) -> bool:
    if isinstance(value, dict) and isinstance(now, dict):
        return value.keys() == now.keys() and all(_is_same(item, now[key]) for key, item in value.items())
    return type(value) is type(now) and bool(value == now or value != value)  # NaN differs from itself


def _results_change(request: Request, model: torch.nn.Module) -> bool:
    """Returns whether the second of two equal calls has other results, although the buffers are the same."""
    eager = eager_model(request)
    leaves = pytree.tree_leaves((request.args, request.kwargs))
    given = [*leaves, *model.parameters(), *model.buffers()]
    if eager is None or any(isinstance(each, FakeTensor) or getattr(each, "is_meta", False) for each in given):
        return False
    try:
        first, second = _call(eager, request), _call(eager, request)
    except Exception:  # the forward is the user's code
        return False
    return len(first) != len(second) or not all(map(_is_equal, first, second))


def _call(eager: EagerModel, request: Request) -> list[torch.Tensor]:
    """Runs the copy of the module on copies of the arguments and restores its buffers."""
    buffers = [(buffer, buffer.clone()) for _, buffer in eager.named_buffers()]
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), (request.args, request.kwargs))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        result = eager(*args, **kwargs)
        found = [leaf.clone() for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        for buffer, values in buffers:
            buffer.copy_(values)
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
