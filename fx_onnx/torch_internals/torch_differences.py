"""The differences between the supported versions of torch for which the package does something else, as one table.

Below it are the kernels for tensors without values that older versions lack, or that check too little there.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import torch
from torch.torch_version import TorchVersion

from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import OpOverload, kernel_keys, python_kernels, statically_known_true
from fx_onnx.torch_internals.trace_private import slice_bound

__all__ = [
    "DIFFERENCES",
    "Difference",
    "has",
    "newer_than",
    "older_fake_kernels",
    "older_kernels",
    "older_than",
    "shape_kernel",
]


class Difference(NamedTuple):
    """What older versions of torch do differently.

    Attributes:
        until: The first version of torch without the difference.
        what: What the older versions do.
        how: What the package does with them.
    """

    until: str
    what: str
    how: str


DIFFERENCES: Mapping[str, Difference] = {
    "tensors as bounds are read": Difference(
        "2.13",
        "Some slices whose bound is a tensor read its number, which is not known during a capture.",
        "The bound is converted to a symbolic number first.",
    ),
    "convolutions check no sizes": Difference(
        "2.13",
        "Without values, a convolution may have a kernel that is larger than its padded input, and _convolution fails.",
        "A kernel for shapes checks what the kernels for values check.",
    ),
    "gamma without shapes": Difference(
        "2.13",
        "The operator aten._standard_gamma has no kernel for tensors without values.",
        "A kernel for shapes returns a tensor like its argument.",
    ),
    "checks of floats are guards": Difference(
        "2.13",
        "What torch knows of a float, such as that math.sqrt of it has a result, is a guard, which it cannot print.",
        "It is a check of the program.",
    ),
    "float8_e4m3fn overflows": Difference(
        "2.13",
        "The cast of a number that is too large to float8_e4m3fn is NaN, and not the largest finite number.",
        "The Cast of the ONNX model does the same.",
    ),
    "bincount keeps the dtype": Difference(
        "2.13",
        "Without values, bincount returns the dtype of its first argument.",
        "What fake tensors call returns the dtype of the sums.",
    ),
    "any number selects": Difference(
        "2.13",
        "Without values, an index may be beyond the end of an axis of any size.",
        "What fake tensors call raises an IndexError.",
    ),
    "sizes of slices from data": Difference(
        "2.12",
        "Without values, the size of a slice is a new symbol where the order of its bounds is not known.",
        "What fake tensors call computes the size of the bounds.",
    ),
    "unique keeps the dtype": Difference(
        "2.12",
        "Without values, the positions and counts of unique have the dtype of its argument.",
        "What fake tensors call returns integers.",
    ),
    "outputs need a hash": Difference(
        "2.12",
        "torch.export looks an output of another class than a tensor's up in a dict, which needs its hash.",
        "It looks the class up.",
    ),
    "no compile session": Difference(
        "2.13",
        "torch.compile sets no flag for the time of a compilation.",
        "The patch that keeps the flag from other threads has no target.",
    ),
}


@functools.cache
def has(difference: str) -> bool:
    """Returns whether the installed torch has a difference of the table."""
    return TorchVersion(torch.__version__) < DIFFERENCES[difference].until


def newer_than(difference: str) -> str:
    """Returns the versions of torch without a difference, as a patch states them: ``torch>=2.13``."""
    return f"torch>={DIFFERENCES[difference].until}"


def older_than(difference: str) -> str:
    """Returns the versions of torch with a difference, as a patch states them: ``torch<2.13``."""
    return f"torch<{DIFFERENCES[difference].until}"


@functools.cache
def older_kernels() -> dict[tuple[OpOverload, Any], Callable[..., Any]]:
    """Returns the kernels that the installed torch needs, by operator and dispatch key; none for a newer torch."""
    _, meta = kernel_keys()
    kernels: dict[tuple[OpOverload, Any], Callable[..., Any]] = {}
    if has("convolutions check no sizes"):
        convolution = functools.partial(_checked_convolution, python_kernels(aten.convolution.default)[meta])
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


def older_fake_kernels() -> dict[OpOverload, Callable[[Any], Callable[..., Any]]]:
    """Returns by operator what makes the function that fake tensors need from that of the installed torch."""
    makers: dict[OpOverload, Callable[[Any], Callable[..., Any]]] = {}
    if has("bincount keeps the dtype"):
        makers[aten.bincount.default] = _with_dtype_of_sums
    if has("any number selects"):
        makers[aten.select.int] = _with_checked_index
    if has("sizes of slices from data"):
        makers[aten.slice.Tensor] = _with_computed_size
    if has("unique keeps the dtype"):
        makers |= dict.fromkeys(_UNIQUE, _with_integers)
    return makers


def _with_dtype_of_sums(kernel: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def bincount(mode: Any, operator: Any, input: Any, weights: Any = None, minlength: Any = 0) -> torch.Tensor:
        counts = kernel(mode, operator, input, weights, minlength)
        sums = torch.float32 if weights is not None and weights.dtype == torch.float32 else torch.float64
        return counts.new_empty(counts.shape, dtype=torch.int64 if weights is None else sums)

    return bincount


def _with_checked_index(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def select(mode: Any, operator: Any, input: torch.Tensor, dim: int, index: Any) -> Any:
        size = input.shape[dim]
        if statically_known_true(index >= size) or statically_known_true(index < -size):
            raise IndexError(f"select(): index {index} out of range for the axis {dim} of size {size}")
        return kernel(mode, operator, input, dim, index)

    return select


def _with_computed_size(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def slice(
        mode: Any, operator: Any, self: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
    ) -> Any:
        size = self.shape[dim]
        first = 0 if start is None else slice_bound(size, start)
        last = size if end is None or statically_known_true(end == sys.maxsize) else slice_bound(size, end)
        as_torch = first is None or last is None or step <= 0 or statically_known_true(first <= last)
        if as_torch or statically_known_true(last <= first):
            return kernel(mode, operator, self, dim, start, end, step)
        sizes, strides = list(self.shape), list(self.stride())
        sizes[dim] = (torch.sym_max(last - first, 0) + step - 1) // step
        offset = self.storage_offset() + first * strides[dim]
        strides[dim] *= step
        return self.as_strided(sizes, strides, offset)

    return slice


_UNIQUE = (aten._unique2.default, aten.unique_dim.default, aten.unique_consecutive.default)


def _with_integers(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def unique(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        values, *integers = kernel(*args, **kwargs)
        return values, *(each.new_empty(each.shape, dtype=torch.int64) for each in integers)

    return unique
