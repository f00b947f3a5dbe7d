"""The modes of torch.export that see each call of a function: most calls are passed on at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch

from fx_onnx.faster_tracing.replacement import Replacement

__all__ = ["REPLACEMENTS"]


def _make_override(original: Callable[..., Any]) -> Sequence[Callable[..., Any]]:
    """Returns ``_override`` that first asks whether torch's method may change a call.

    It changes calls of distributed collectives, of ``torch.tensor``, of ``torch._assert``, and of a function with the
    name ``__getitem__``. Others it returns as they are.
    """
    collectives: Any = ()
    if torch.distributed.is_available():
        collectives = import_module("torch.distributed._functional_collectives").traceable_collective_remaps

    def override(self: Any, func: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ == "__getitem__" or func in (torch.tensor, torch._assert) or func in collectives:
            return original(self, func, args, kwargs)
        return func, args, kwargs

    return (override,)


REPLACEMENTS = (
    Replacement(
        ("torch._export.non_strict_utils:_NonStrictTorchFunctionHandler._override",),
        _make_override,
        "Each call of a function imports the functions of torch.distributed.",
    ),
)
