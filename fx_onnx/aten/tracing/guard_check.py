"""Check of the guards that a trace adds: a decomposition that specializes a symbolic size is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sympy
from torch.fx import Node

from fx_onnx.aten.fx_nodes import describe
from fx_onnx.core.errors import TranslationError
from fx_onnx.core.torch_private import FakeTensorMode, size_oblivious


@contextmanager
def refuse_guards(fake_mode: FakeTensorMode, node: Node) -> Iterator[None]:
    """Refuses a trace that adds guards on symbolic sizes, because its graph is right for the example's sizes only.

    Inside the context, torch adds no guard when the function asks whether a size is 0 or 1. Guards that are
    preconditions of the operator (``is_precondition``) are accepted.

    Args:
        fake_mode: the mode of the trace, whose shape environment collects the guards.
        node: the call that is traced, for the message.

    Raises:
        TranslationError: the trace added a guard; the message lists all.
    """
    before = len(_guards(fake_mode))
    with size_oblivious():
        yield
    new = [str(guard.expr) for guard in _guards(fake_mode)[before:] if not is_precondition(guard.expr)]
    if new:
        raise TranslationError(f"{describe(node)} can only be decomposed where {' and '.join(new)}.")


def is_precondition(guard: Any) -> bool:
    """Returns whether a guard states that two sizes are equal.

    The operator itself requires such sizes to be equal, as attention does for the lengths of keys and values.
    """
    return isinstance(guard, sympy.Eq) and all(isinstance(side, sympy.Symbol) for side in guard.args)


def _guards(fake_mode: FakeTensorMode) -> list[Any]:
    """Returns the guards on symbolic sizes so far."""
    return fake_mode.shape_env.guards if fake_mode.shape_env is not None else []
