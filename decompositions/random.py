"""Decompositions of random operators into rand and randn.

The results have the same distribution as torch's, but not the same values.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_onnx.decompositions._loops import while_loop
from fx_onnx.decompositions.registry import aten, decomposes

Number = bool | int | float


def _uniform_like(self: Tensor) -> Tensor:
    """Returns uniform numbers in [0, 1), in float64 or float32.

    A dtype of lower precision would round some of them up to 1. Then 1 - u would be 0, and its logarithm infinite.
    """
    dtype = self.dtype if self.dtype == torch.float64 else torch.float32
    return torch.rand(self.shape, dtype=dtype, device=self.device)


def _integers(low: int, high: int, size: Sequence[int], dtype: torch.dtype | None, device: Any) -> Tensor:
    """Returns integers in [low, high), from 53 random bits."""
    uniform = torch.rand(size, dtype=torch.float64, device=device)
    return (torch.floor(uniform * (high - low)) + low).to(torch.int64 if dtype is None else dtype)


@decomposes(aten.randint.default)
def randint(high: int, size: Sequence[int], *, dtype: torch.dtype | None = torch.int64, **options: Any) -> Tensor:
    """Returns integers in [0, high)."""
    return _integers(0, high, size, dtype, options.get("device"))


@decomposes(aten.randint.low)
def randint_low(
    low: int, high: int, size: Sequence[int], *, dtype: torch.dtype | None = torch.int64, **options: Any
) -> Tensor:
    """Returns integers in [low, high)."""
    return _integers(low, high, size, dtype, options.get("device"))


@decomposes(aten.randint_like.default)
def randint_like(self: Tensor, high: int, *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    """Returns integers in [0, high), in the shape of a tensor."""
    return _integers(0, high, self.shape, dtype or self.dtype, self.device)


@decomposes(aten.randint_like.low_dtype)
def randint_like_low(self: Tensor, low: int, high: int, *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    """Returns integers in [low, high), in the shape of a tensor."""
    return _integers(low, high, self.shape, dtype or self.dtype, self.device)


@decomposes(aten.random.to)
def random_to(self: Tensor, to: int, *, generator: Any = None) -> Tensor:
    """Returns integers in [0, to), in the shape and dtype of a tensor."""
    return _integers(0, to, self.shape, self.dtype, self.device)


@decomposes(aten.random.default)
def random(self: Tensor, *, generator: Any = None) -> Tensor:
    """Returns integers up to the largest one below which the dtype represents all; 0 and 1 for booleans."""
    dtype = self.dtype
    if dtype.is_floating_point:
        return random_to(self, int(2 / torch.finfo(dtype).eps) + 1)
    return random_to(self, 2 if dtype == torch.bool else torch.iinfo(dtype).max + 1)


@decomposes(aten.randperm.default)
def randperm(n: int, *, dtype: torch.dtype | None = torch.int64, **options: Any) -> Tensor:
    """Returns the permutation that sorts n random numbers."""
    return torch.rand(n, dtype=torch.float64, device=options.get("device")).argsort().to(dtype or torch.int64)


@decomposes(aten.normal.float_float)
def normal_float_float(
    mean: float, std: float, size: Sequence[int], *, dtype: torch.dtype | None = None, **options: Any
) -> Tensor:
    """Returns mean + std * randn."""
    return torch.randn(size, dtype=dtype, device=options.get("device")) * std + mean


@decomposes(aten.normal.Tensor_float, aten.normal.Tensor_Tensor)
def normal_tensor(mean: Tensor, std: Any = 1.0, *, generator: Any = None) -> Tensor:
    """Returns mean + std * randn."""
    size: torch.Size = (mean + std).shape
    result: Tensor = torch.randn(size, dtype=mean.dtype, device=mean.device) * std + mean
    return result


@decomposes(aten.normal.float_Tensor)
def normal_float_tensor(mean: float, std: Tensor, *, generator: Any = None) -> Tensor:
    """Returns mean + std * randn."""
    return torch.randn(std.shape, dtype=std.dtype, device=std.device) * std + mean


@decomposes(aten.normal_functional.default)
def normal_functional(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Returns mean + std * randn, in the shape of a tensor."""
    return torch.randn_like(self) * std + mean


@decomposes(aten.uniform.default)
def uniform(self: Tensor, *limits: float, generator: Any = None, **named: float) -> Tensor:
    """Returns numbers in [from, to).

    ``from`` is a keyword of Python, so the function takes it in ``limits`` or ``named``.
    """
    low, high = (*limits, *(0.0, 1.0)[len(limits) :])
    low, high = named.get("from", low), named.get("to", high)
    return (_uniform_like(self) * (high - low) + low).to(self.dtype)


@decomposes(aten.exponential.default)
def exponential(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Returns -log(1 - u) / lambd."""
    return (-torch.log1p(-_uniform_like(self)) / lambd).to(self.dtype)


@decomposes(aten.cauchy.default)
def cauchy(self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None) -> Tensor:
    """Returns median + sigma * tan(π (u - 1/2))."""
    return (torch.tan((_uniform_like(self) - 0.5) * math.pi) * sigma + median).to(self.dtype)


@decomposes(aten.log_normal.default)
def log_normal(self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> Tensor:
    """Returns exp(mean + std * randn)."""
    return torch.exp(torch.randn_like(self) * std + mean)


@decomposes(aten.geometric.default)
def geometric(self: Tensor, p: float, *, generator: Any = None) -> Tensor:
    """Returns the number of trials until the first success of probability p."""
    trials = torch.ceil(torch.log1p(-_uniform_like(self)) / (math.log1p(-p) if p < 1 else -math.inf))
    return trials.clamp(min=1).to(self.dtype)


@decomposes(aten.bernoulli.p)
def bernoulli_p(self: Tensor, p: float = 0.5, *, generator: Any = None) -> Tensor:
    """Returns 1 with probability p and 0 otherwise, in the shape and dtype of a tensor."""
    return (_uniform_like(self) < p).to(self.dtype)


@decomposes(aten.bernoulli.Tensor)
def bernoulli_tensor(self: Tensor, p: Tensor, *, generator: Any = None) -> Tensor:
    """Returns 1 with the probability in p for each element, and 0 otherwise."""
    return (_uniform_like(self) < p).to(self.dtype)


@decomposes(aten.bernoulli.default)
def bernoulli(self: Tensor, *, generator: Any = None) -> Tensor:
    """Returns 1 with the probability in self for each element, and 0 otherwise."""
    return (_uniform_like(self) < self).to(self.dtype)


@decomposes(aten.poisson.default)
def poisson(self: Tensor, generator: Any = None) -> Tensor:
    """Returns how many exponentially distributed waiting times of mean 1 end before ``self``, with a step for each.

    All numbers are drawn inside the loop: ONNX Runtime's seeds inside a loop may equal those outside.
    """
    rate = self.double()

    def is_running(count: Tensor, time: Tensor, rate: Tensor) -> Tensor:
        return (time <= rate).any()

    def step(count: Tensor, time: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        return count + (time <= rate), time + exponential(time)

    begin = torch.full_like(rate, -1), torch.zeros_like(rate)
    return while_loop(is_running, step, begin, (rate,))[0].clamp(min=0).to(self.dtype)


@decomposes(aten._standard_gamma.default)
def standard_gamma(self: Tensor, generator: Any = None) -> Tensor:
    """Returns gamma variates of scale 1 by the rejection method of Marsaglia and Tsang, repeated until all fit.

    A shape below 1 is raised by 1, and the variate is multiplied by u ** (1 / shape).
    """
    shape = self.double()
    raised = torch.where(shape < 1, shape + 1, shape) - 1 / 3

    def is_running(variate: Tensor, is_open: Tensor, shape: Tensor, raised: Tensor) -> Tensor:
        return is_open.any()

    def step(variate: Tensor, is_open: Tensor, shape: Tensor, raised: Tensor) -> tuple[Tensor, Tensor]:
        normal = torch.randn_like(raised)
        cube = (1 + normal / torch.sqrt(9 * raised)) ** 3
        limit = normal * normal / 2 + raised * (1 - cube + torch.log(cube))
        accepted = is_open & (cube > 0) & (torch.log(torch.rand_like(raised)) < limit)
        factor = torch.where(shape < 1, torch.rand_like(shape) ** (1 / shape), 1.0)
        return torch.where(accepted, raised * cube * factor, variate), is_open & ~accepted

    is_open = (shape > 0) & (shape < math.inf)  # NaN and infinity would never be accepted
    variate = while_loop(is_running, step, (shape * 0, is_open), (shape, raised))[0]
    return variate.clamp(min=torch.finfo(self.dtype).tiny).to(self.dtype)


@decomposes(aten.multinomial.default)
def multinomial(self: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    """Returns the indices of the largest p / e, where e is exponentially distributed: a sample without replacement.

    With replacement, each sample has its own e and takes the index of the smallest e / p.
    """
    waiting = -torch.log1p(-_uniform_like(self))
    if replacement:
        waiting = -torch.log1p(-torch.rand((*self.shape[:-1], num_samples, self.size(-1)), device=self.device))
        return torch.argmin(waiting / self.unsqueeze(-2), -1)
    return torch.topk(self / waiting.clamp(min=1e-38), num_samples, -1).indices


@decomposes(aten.feature_dropout.default)
def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Returns the input with whole channels set to 0 with probability p, and the others scaled by 1 / (1 - p)."""
    if not train or p == 0:
        return input
    return input * 0.0 if p == 1 else torch.where(_kept_channels(input, p), input * (1 / (1 - p)), 0.0)


def _kept_channels(input: Tensor, p: float) -> Tensor:
    """Returns which channels a dropout of probability p keeps, shaped to broadcast with the input."""
    return torch.rand((*input.shape[:2], *(1,) * (input.dim() - 2)), device=input.device) >= p


def _alpha_dropout(input: Tensor, keep: Tensor, p: float) -> Tensor:
    """Returns the input with SELU's lower limit where ``keep`` is false, at the same mean and variance."""
    limit = -1.7580993408473766
    if p == 1:
        return input * 0.0
    scale = 1 / math.sqrt((limit * limit * p + 1) * (1 - p))
    return torch.where(keep, input, limit) * scale - scale * limit * p


@decomposes(aten.alpha_dropout.default)
def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Returns the input with elements set to SELU's lower limit with probability p, with the same mean and variance."""
    return _alpha_dropout(input, _uniform_like(input) >= p, p) if train and p > 0 else input


@decomposes(aten.feature_alpha_dropout.default)
def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Returns the result of ``alpha_dropout`` that drops whole channels."""
    if not train or p == 0:
        return input
    return _alpha_dropout(input, _kept_channels(input, p), p)
