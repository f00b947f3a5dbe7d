"""Patches for functions of torch that read values only to check them, or to find the shape of a result.

A capture has no values. The replacements compute the same with operators that need none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as _torch_attention

from fx_onnx.capture.patches.patching import PatchTable
from fx_onnx.core.torch_private import pytree

__all__ = ["COMPOSITE_FUNCTIONS", "PATCHES"]


def _cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """Replaces ``torch.cov``, which checks the weights and the degrees of freedom.

    Args:
        input: (variable, observation), or one variable in one or no dimension.
        correction: What is subtracted from the number of observations.
        fweights: The frequency of each observation, (observation).
        aweights: The weight of each observation, (observation).
    """
    rows = input if input.ndim == 2 else input.reshape(1, -1)
    weights = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    real = rows.real if rows.is_complex() else rows
    total: Tensor = real.new_ones(rows.shape[1]).sum() if weights is None else weights.sum()
    center = (rows if weights is None else rows * weights).sum(1) / total
    freedom = total - correction
    if weights is not None and aweights is not None and correction:
        freedom = total - correction * (weights * aweights).sum() / total
    deviations = rows - center.unsqueeze(1)
    weighted = deviations if weights is None else deviations * weights
    return (torch.mm(deviations, weighted.t().conj()) / freedom.clamp(min=0)).squeeze()


def _corrcoef(input: Tensor) -> Tensor:
    """Replaces ``torch.corrcoef``, the covariances divided by the standard deviations."""
    covariances = _cov(input)
    if covariances.ndim == 0:
        return covariances / covariances
    diagonal = covariances.diagonal()
    deviations = (diagonal.real if diagonal.is_complex() else diagonal).sqrt()
    result = covariances / deviations.unsqueeze(1) / deviations
    if result.is_complex():
        return torch.complex(result.real.clamp(-1, 1), result.imag.clamp(-1, 1))
    return result.clamp(-1, 1)


def _combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Replaces ``torch.combinations``, which selects them by a mask: a gather by constant indices."""
    size = input.shape[0] if input.ndim == 1 else None
    if not isinstance(size, int) or r < 1:
        return torch.combinations(input, r, with_replacement)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    chosen = list(choose(range(size), r))
    return input[torch.tensor(chosen, dtype=torch.int64).reshape(len(chosen), r)]


def scaled_dot_product_attention(*args: Any, **kwargs: Any) -> Tensor:
    """Replaces ``scaled_dot_product_attention``: a symbolic ``is_causal``, which it refuses, is that of the example."""
    args, kwargs = pytree.tree_map_only(torch.SymBool, bool, (args, kwargs))
    return _torch_attention(*args, **kwargs)


def _assert(condition: Any, message: Any) -> None:
    """Replaces ``torch._assert``: torch 2.15 records an operator, also where the model catches the exception."""
    if not condition:
        raise AssertionError(message)


COMPOSITE_FUNCTIONS: Mapping[Any, Callable[..., Tensor]] = {
    torch.cov: _cov,
    torch.Tensor.cov: _cov,
    torch.corrcoef: _corrcoef,
    torch.Tensor.corrcoef: _corrcoef,
    torch.combinations: _combinations,
}
"""Replacements by function of torch, for a mode that sees the calls."""

PATCHES: PatchTable = {
    ("torch", "_assert"): _assert,
    ("torch.nn.functional", "scaled_dot_product_attention"): scaled_dot_product_attention,
}
"""Replacements of functions that no mode sees: one takes no tensor, the other refuses its arguments before."""
