"""Kernels for tensors without values that older versions of torch lack, or that check too little there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import torch

from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_differences import has
from fx_onnx.torch_internals.torch_private import OpOverload, kernel_keys, python_kernels

__all__ = ["check_sizes", "older_kernels"]


def older_kernels() -> dict[tuple[OpOverload, Any], Callable[..., Any]]:
    """Returns the kernels that the installed torch needs, by operator and dispatch key; none for a newer torch."""
    _, meta = kernel_keys()
    convolution = aten.convolution.default
    kernels: dict[tuple[OpOverload, Any], Callable[..., Any]] = {}
    if has("convolutions check no sizes"):
        kernels[convolution, meta] = partial(_checked, python_kernels(convolution)[meta])
    if has("no shapes of _convolution"):
        kernels[aten._convolution.default, meta] = lambda *args: convolution(*args[:9])
    return kernels


def check_sizes(operator: Any, args: Sequence[Any]) -> None:
    """Checks what a newer torch checks of the arguments of an operator without values, and raises a RuntimeError."""
    if operator is aten.convolution.default and has("convolutions check no sizes"):
        _check_convolution(*args)


def _checked(kernel: Callable[..., Any], *args: Any) -> Any:
    _check_convolution(*args)
    return kernel(*args)


def _check_convolution(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, *_: Any,
) -> None:  # fmt: skip
    """Checks that the kernel of a convolution fits into the padded input."""
    sizes = zip(input.shape[2 - weight.dim() :], weight.shape[2:], cycle(padding), cycle(dilation), strict=False)
    for size, kernel_size, pad, step in sizes:
        fits = transposed or size + 2 * pad >= step * (kernel_size - 1) + 1
        torch._check(fits, lambda: "The kernel of the convolution is larger than the padded input.")
