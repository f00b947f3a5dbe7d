"""The incomplete gamma functions, by Gauss-Legendre quadrature in float64 (DLMF chapter 8)."""

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fx_onnx.decompositions.arithmetic import promoted
from fx_onnx.decompositions.registry import aten, decomposes
from fx_onnx.decompositions.special import doubled, lgamma_double

_POINTS = 64
_SERIES_TERMS = 8  # terms before the quadrature; its integrand then vanishes smoothly at v = 1


@functools.cache
def _gauss_legendre() -> tuple[Any, Any]:
    """Returns the points in [-1, 1] and the weights of the quadrature."""
    points, weights = np.polynomial.legendre.leggauss(_POINTS)
    return points, weights


def _quadrature(upper: Tensor) -> tuple[Tensor, Tensor]:
    """Returns points and weights for integrals from 0 to ``upper``, along a new last axis."""
    points, weights = _gauss_legendre()
    half = upper.unsqueeze(-1) * 0.5
    return half * torch.tensor(points + 1.0), half * torch.tensor(weights)


def _lower(a: Tensor, x: Tensor) -> Tensor:
    """Returns P(a, x) for x <= a + 1.

    It is x^a exp(-x) / gamma(a + 1) times the sum over k of x^k / ((a + 1) … (a + k)) (DLMF 8.7.1). The sum from the
    eighth term on is (a + 8) times the integral of (1 - v)^(a + 7) exp(x v) from 0 to 1, whose integrand is negligible
    beyond v = 12 / sqrt(a + 8).
    """
    order = a + _SERIES_TERMS
    v, weights = _quadrature(torch.clamp(12 / torch.sqrt(order), max=1.0))
    integrand = torch.exp((order.unsqueeze(-1) - 1) * torch.log1p(-v) + x.unsqueeze(-1) * v)
    total = order * torch.sum(weights * integrand, -1)
    for k in range(_SERIES_TERMS, 0, -1):
        total = 1 + x / (a + k) * total
    return torch.exp(a * torch.log(x) - x - lgamma_double(a + 1)) * total


def _upper(a: Tensor, x: Tensor) -> Tensor:
    """Returns Q(a, x) for x > a + 1.

    It is x^a exp(-x) / gamma(a) times the integral of (1 + s)^(a - 1) exp(-x s) over s > 0 (DLMF 8.6.5).
    """
    s, weights = _quadrature(10 / torch.sqrt(x) + 50 / x)
    integrand = torch.exp((a.unsqueeze(-1) - 1) * torch.log1p(s) - x.unsqueeze(-1) * s)
    return torch.exp(a * torch.log(x) - x - lgamma_double(a)) * torch.sum(weights * integrand, -1)


def _p_and_q(self: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Any]:
    """Returns P and Q, with their limits at zero and infinity, and the dtype of the result."""
    a, x, dtype = doubled(*promoted(self, other))
    a, x = torch.broadcast_tensors(a, x)
    valid = (a > 0) & (x > 0) & (a < torch.inf) & (x < torch.inf)
    b, y = torch.where(valid, a, 1.0), torch.where(valid, x, 1.0)
    low = y <= b + 1
    lower = _lower(b, torch.where(low, y, b))
    upper = _upper(torch.where(low, 1.0, b), torch.where(low, 3.0, y))
    # The limits of P: 1 where a is 0 or x is infinite, and 0 where x is 0 or a is infinite.
    limit = torch.where((x == 0) | (a == torch.inf), 0.0, 1.0)
    undefined = (a < 0) | (x < 0) | ((a == 0) & (x == 0)) | ((a == torch.inf) & (x == torch.inf)) | (a != a) | (x != x)
    limit = torch.where(undefined, torch.nan, limit)
    p = torch.where(valid, torch.where(low, lower, 1 - upper), limit)
    q = torch.where(valid, torch.where(low, 1 - lower, upper), 1 - limit)
    return p, q, dtype


@decomposes(aten.igamma.default, aten.special_gammainc.default)
def igamma(self: Tensor, other: Tensor) -> Tensor:
    """Returns the regularized lower incomplete gamma function P(self, other)."""
    p, _, dtype = _p_and_q(self, other)
    return p.to(dtype)


@decomposes(aten.igammac.default, aten.special_gammaincc.default)
def igammac(self: Tensor, other: Tensor) -> Tensor:
    """Returns the regularized upper incomplete gamma function Q(self, other)."""
    _, q, dtype = _p_and_q(self, other)
    return q.to(dtype)
