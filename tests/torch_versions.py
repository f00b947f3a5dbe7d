"""What tests need of the installed torch: the tests that it cannot pass are skipped, each with its reason."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch.torch_version import TorchVersion


class Need(NamedTuple):
    """The versions of torch, from ``first`` to before ``end``, for which a test is made, and why not for others."""

    reason: str
    first: str = "0"
    end: str = "99"


NEEDS = {
    "aliases of operands": Need("torch runs no branch that returns an operand", "2.12"),
    "writes in branches": Need("torch captures no branch that writes in place", "2.12"),
    "exceptions in branches": Need("dynamo hides the message of an exception in a branch", "2.12"),
    "isclose broadcasts": Need("isclose does not broadcast its first argument", "2.12"),
    "scales of rows": Need("_scaled_mm takes one scale on the CPU", "2.12"),
    "decomposition of max_pool2d_with_indices_backward": Need("torch has no decomposition of the operator", "2.12"),
    "nuclear norm of any size": Need("torch makes a number of the sizes", "2.12"),
    "uint8 products": Need("_int_mm takes int8 only, and _scaled_mm_v2 has no kernel for CPUs", "2.12"),
    "PT2E of torchao": Need("torchao 0.18 quantizes no operator of this torch", "2.12"),
    "sizes of images": Need("reshape and interpolate ask more of the sizes, and findings say so", "2.12"),
    "quantile of any size": Need("torch captures no quantile of a dynamic size", "2.12"),
    "keywords of apply": Need("apply of an autograd function takes no keyword arguments", "2.13"),
    "nested_compile_region": Need("torch.export fails in a region that is called twice", "2.13"),
    "jvp": Need("torch.export fails in torch.func.jvp", "2.13"),
    "compiled control flow": Need("dynamo refuses a dispatch mode of the module", "2.13"),
    "known sources": Need("no function of this torch has a faster replacement", "2.13"),
    "aten._unique": Need("torch has no fake implementation of the operator", "2.13"),
    "OpInfo of native_group_norm": Need("torch has no samples of the operator", "2.13"),
    "linear_cross_entropy": Need("torch has no such operator", "2.13"),
    "found at least two devices": Need("the message of torch has other words", "2.13"),
    "no POSIX": Need("torch for Linux imports modules that only POSIX has", "2.13"),
    "combinations": Need("torch captures the operator", end="2.14"),
    "a line for each check": Need("torch.distributions checks several values at a line", end="2.15"),
    "norms in float16": Need("the norm of float16 stays, between two Casts", end="2.15"),
}


def has(need: str) -> bool:
    """Returns whether the installed torch is one for which a test is made."""
    return NEEDS[need].first <= TorchVersion(torch.__version__) < NEEDS[need].end


def needs(need: str) -> pytest.MarkDecorator:
    """Returns the mark that skips a test where the installed torch lacks something."""
    return pytest.mark.skipif(not has(need), reason=NEEDS[need].reason)
