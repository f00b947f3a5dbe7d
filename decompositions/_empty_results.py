"""Registration of decompositions whose empty results need no computation.

Runtimes make mistakes in arithmetic on empty tensors, for example in a matrix product over an axis of size 0.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor

from fx_onnx.decompositions._sizes import is_empty
from fx_onnx.decompositions.registry import decomposes

Function = TypeVar("Function", bound=Callable[..., Any])


def decomposes_unless_empty(*targets: Any) -> Callable[[Function], Function]:
    """Registers a decomposition as ``decomposes`` does, and replaces each result that is known to be empty.

    The replacement is a new tensor of the same shape and dtype. The operators that computed the original become dead
    code.
    """

    def register(function: Function) -> Function:
        @functools.wraps(function)
        def replaces_empty_results(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            return tuple(map(_new_if_empty, result)) if isinstance(result, tuple) else _new_if_empty(result)

        decomposes(*targets)(replaces_empty_results)
        return function

    return register


def _new_if_empty(result: Tensor) -> Tensor:
    """Returns new zeros for an empty tensor, and any other tensor unchanged."""
    return result.new_zeros(result.shape) if is_empty(result) else result
