"""Sizes that a forward rounds, as to a multiple of a window: they stay right, and their expressions short."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fx_onnx.capture.patches.patching import Around, Patch
from fx_onnx.torch_internals.size_private import in_fewest_terms
from fx_onnx.torch_internals.torch_private import statically_known_true

__all__ = ["PATCHES", "constant_pad", "pooled_size"]


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


def pooled_size(size: Any, kernel: Any, before: Any, after: Any, stride: Any, dilation: Any, ceil_mode: bool) -> Any:
    """Returns the number of windows along an axis, by one expression for all sizes.

    With ``ceil_mode``, a window that would start after the input and the padding before it is left out. torch compares
    sizes for this, and takes what is true for the example.
    """
    reach = dilation * (kernel - 1)
    more = min(stride - 1, reach - after) if ceil_mode else 0
    return (size + before + after - reach - 1 + more) // stride + 1


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
        "torch._meta_registrations:pooling_output_shape_pad_lr",
        pooled_size,
        "The shape of a pool with ceil_mode would be right for some sizes only.",
    ),
)
