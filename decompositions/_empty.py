"""Nothing comes of nothing: an empty result needs no arithmetic, of which runtimes make mistakes on empty tensors."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor
from torch.utils import _pytree as pytree

from fx_onnx.decompositions.registry import decomposes

Function = TypeVar("Function", bound=Callable[..., Any])


def decomposes_unless_empty(*targets: Any) -> Callable[[Function], Function]:
    """``decomposes``, with each result that is known to be empty made anew: what computed it is dead code then."""

    def register(function: Function) -> Function:
        @functools.wraps(function)
        def filled(*args: Any, **kwargs: Any) -> Any:
            return pytree.tree_map_only(Tensor, _without_source, function(*args, **kwargs))

        decomposes(*targets)(filled)
        return function

    return register


def is_empty(x: Tensor) -> bool:
    """Whether a tensor is known to have no elements."""
    return any(isinstance(size, int) and size == 0 for size in x.shape)


def _without_source(result: Tensor) -> Tensor:
    return result.new_zeros(result.shape) if is_empty(result) else result
