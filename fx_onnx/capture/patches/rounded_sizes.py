"""Sizes that a forward rounds, as to a multiple of a window: they stay right, and their expressions short."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fx_onnx.capture.patches.patching import Around, Patch
from fx_onnx.torch_internals.size_private import in_fewest_terms
from fx_onnx.torch_internals.torch_differences import older_than
from fx_onnx.torch_internals.torch_private import statically_known_true

__all__ = ["PATCHES", "constant_pad"]


def constant_pad(kernel: Callable[..., Any], input: torch.Tensor, pad: Sequence[Any], *rest: Any) -> torch.Tensor:
    """Pads to sizes in fewest terms, whatever the forward computes the padding from.

    The sizes of layers that pad to a multiple of a stride or a window would double from layer to layer.
    """
    pad = list(pad)
    for axis, (size, before, after) in enumerate(zip(reversed(input.shape), pad[::2], pad[1::2], strict=False)):
        if not (isinstance(before, int) and isinstance(after, int)):
            pad[2 * axis + 1] = in_fewest_terms(size + before + after) - size - before
    padded: torch.Tensor = kernel(input, pad, *rest)
    return padded


def _floordiv(divide: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Replaces ``SymInt.__floordiv__``: divides by a positive number.

    torch takes ``a // b // -2`` for ``a // (-2 * b)``, which is another number for ``a = 1, b = 2``.
    """

    def floordiv(number: torch.SymInt, divisor: Any) -> Any:
        is_negative = isinstance(divisor, (int, torch.SymInt)) and statically_known_true(divisor < 0)
        return -divide(number - divisor - 1, -divisor) if is_negative else divide(number, divisor)

    return floordiv


PATCHES = (
    Patch("torch:SymInt.__floordiv__", Around(_floordiv), "torch takes some negative divisors for others."),
    Patch(
        "torch._meta_registrations:div_rtn",
        operator.floordiv,
        "The shape of a pool would depend on the remainder of its input.",
        versions=older_than("pools compare remainders"),
    ),
)
