"""Compares a decomposition for complex tensors, which computes on pairs of real ones, with the operator of torch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import fx_onnx.complex_tensors.complex_to_real  # noqa: F401  registers the decompositions
from fx_onnx.decompositions.registry import COMPLEX, Complex
from tests.compare import assert_close


def assert_complex_matches_torch(target: Any, *args: Any, **kwargs: Any) -> None:
    """Checks the complex decomposition of ``target``, which computes on pairs of real tensors, against ``target``.

    Raises:
        AssertionError: a value, a shape or a dtype differs.
    """
    function: Callable[..., Any] = COMPLEX.get(target) or COMPLEX[target.overloadpacket]
    pairs = function(*map(to_pair, args), **{key: to_pair(value) for key, value in kwargs.items()})
    assert_close(from_pairs(pairs), pytree.tree_map_only(Tensor, Tensor.resolve_conj, target(*args, **kwargs)))


def to_pair(value: Any) -> Any:
    """Returns the real and the imaginary part of a complex tensor, and any other value unchanged."""
    if isinstance(value, Tensor) and value.is_complex():
        value = value.resolve_conj()
        return Complex(value.real.clone(), value.imag.clone())
    return value


def from_pairs(result: Any) -> Any:
    """Returns the result with a complex tensor for each pair."""
    if isinstance(result, Complex):
        return torch.complex(result.real, result.imag)
    return [from_pairs(item) for item in result] if isinstance(result, (list, tuple)) else result
