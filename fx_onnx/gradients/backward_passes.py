"""Lets torch.export record a backward pass that reads intermediate values of the forward pass.

torch.export records the operators that the forward calls. Autograd works one level below: it saves the values within
composite operators, such as the transposed weight of linear, and copies of results, such as that of tanh.
torch.export would make constants of them. This file computes them again from recorded values before the backward pass,
and dead-code elimination removes the unused ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.requests.pytrees import tensors_in
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import OpOverload, TorchDispatchMode
from fx_onnx.torch_internals.trace_private import is_recorded, share_trace

__all__ = ["record_backward"]


@contextmanager
def record_backward() -> Iterator[None]:
    """Records backward passes within the context. This makes the capture slower."""
    mode = _IntermediatesMode()
    grad = replace_attribute(torch.autograd, "grad", mode.before(torch.autograd.grad))
    backward = replace_attribute(torch.autograd, "backward", mode.before(torch.autograd.backward))
    with grad, backward, mode:
        yield


class _IntermediatesMode(TorchDispatchMode):
    """Collects the operators that run below autograd, with their arguments and results."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls: list[tuple[Any, Any, Any, Any]] = []
        self._is_repeating = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls the operator."""
        result = func(*args, **(kwargs or {}))
        if func is aten.detach.default and is_recorded(args[0]):  # autograd reads a saved value
            share_trace(args[0], result)
        elif not self._is_repeating and _can_be_repeated(func):
            self._calls.append((func, args, kwargs or {}, result))
        return result

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that records the intermediate values, and then calls ``function``."""

        def replaced(*args: Any, **kwargs: Any) -> Any:
            self._is_repeating = True
            try:
                for call in self._calls:
                    _repeat(*call)
            finally:
                self._is_repeating = False
            self._calls.clear()
            return function(*args, **kwargs)

        return replaced


def _can_be_repeated(func: Any) -> bool:
    """Returns whether a second call has the same result and no effect."""
    if not isinstance(func, OpOverload):
        return False
    return not func._schema.is_mutable and torch.Tag.nondeterministic_seeded not in func.tags


def _repeat(func: Any, args: Any, kwargs: Any, result: Any) -> None:
    """Calls an operator again where torch.export records it, unless its results are recorded or its arguments are not.

    A tensor on which torch.export has recorded nothing is a weight or a constant if it is an argument of no call.
    """
    old = tensors_in(result)
    if all(map(is_recorded, old)) or not all(map(is_recorded, tensors_in((args, kwargs)))):
        return
    for tensor, new in zip(old, tensors_in(func(*args, **kwargs)), strict=True):
        share_trace(new, tensor)
