"""Functions of torch that read values to check them, or to find the shape of a result, as functions that need none.

A capture has no values. Torch composes these functions of operators before a decomposition can replace them, so a mode
that sees the calls replaces them.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor


def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """Returns ``torch.cov``, which checks the weights and the degrees of freedom.

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


def corrcoef(input: Tensor) -> Tensor:
    """Returns ``torch.corrcoef``: the covariances divided by the standard deviations."""
    covariances = cov(input)
    if covariances.ndim == 0:
        return covariances / covariances
    diagonal = covariances.diagonal()
    deviations = (diagonal.real if diagonal.is_complex() else diagonal).sqrt()
    result = covariances / deviations.unsqueeze(1) / deviations
    if result.is_complex():
        return torch.complex(result.real.clamp(-1, 1), result.imag.clamp(-1, 1))
    return result.clamp(-1, 1)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Returns ``torch.combinations``, which selects them by a mask, by a gather of constant indices.

    The indices of a symbolic size are those of an ascending row in the product of the places with themselves.
    """
    size = input.shape[0] if input.ndim == 1 else None
    if isinstance(size, torch.SymInt) and r == 1:
        return input.unsqueeze(1).clone()
    if isinstance(size, torch.SymInt) and r > 1:
        places = torch.cartesian_prod(*[torch.arange(size)] * r)
        ascends = torch.le if with_replacement else torch.lt
        return input[places[ascends(places[:, :-1], places[:, 1:]).all(1)]]
    if not isinstance(size, int) or r < 1:
        return torch.combinations(input, r, with_replacement)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    chosen = list(choose(range(size), r))
    return input[torch.tensor(chosen, dtype=torch.int64).reshape(len(chosen), r)]


WITHOUT_VALUES: Mapping[Any, Callable[..., Tensor]] = {
    torch.cov: cov,
    torch.Tensor.cov: cov,
    torch.corrcoef: corrcoef,
    torch.Tensor.corrcoef: corrcoef,
    torch.combinations: combinations,
}
"""The replacements, by function of torch."""
