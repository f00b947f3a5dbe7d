"""The differences between the supported versions of torch for which the package does something else, as one table."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch.torch_version import TorchVersion

__all__ = ["DIFFERENCES", "Difference", "has", "newer_than", "older_than"]


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
