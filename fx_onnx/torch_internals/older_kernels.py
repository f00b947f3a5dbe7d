"""Kernels for tensors without values that older versions of torch lack, or that check too little there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import cycle
from typing import Any

import torch

from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_differences import has
from fx_onnx.torch_internals.torch_private import OpOverload, kernel_keys, python_kernels

__all__ = ["older_kernels", "shape_kernel"]


@cache
def older_kernels() -> dict[tuple[OpOverload, Any], Callable[..., Any]]:
    """Returns the kernels that the installed torch needs, by operator and dispatch key; none for a newer torch."""
    _, meta = kernel_keys()
    kernels: dict[tuple[OpOverload, Any], Callable[..., Any]] = {}
    if has("convolutions check no sizes"):
        convolution = partial(_checked_convolution, python_kernels(aten.convolution.default)[meta])
        kernels[aten.convolution.default, meta] = convolution
        kernels[aten._convolution.default, meta] = lambda *args: convolution(*args[:9])
    if has("gamma without shapes"):
        kernels[aten._standard_gamma.default, meta] = lambda input, generator=None: torch.empty_like(input)
    return kernels


def shape_kernel(operator: OpOverload) -> Callable[..., Any]:
    """Returns what computes an operator on tensors without values: an older kernel, or the operator itself."""
    return older_kernels().get((operator, kernel_keys()[1]), operator)


def _checked_convolution(
    kernel: Callable[..., Any], input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], transposed: bool, *rest: Any,
) -> Any:  # fmt: skip
    """Returns an empty result of a convolution whose kernel fits into the padded input."""
    sizes = zip(input.shape[2 - weight.dim() :], weight.shape[2:], cycle(padding), cycle(dilation), strict=False)
    for size, kernel_size, pad, step in sizes:
        fits = transposed or size + 2 * pad >= step * (kernel_size - 1) + 1
        torch._check(fits, lambda: "The kernel of the convolution is larger than the padded input.")
    return kernel(input, weight, bias, stride, padding, dilation, transposed, *rest)
