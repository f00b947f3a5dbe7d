"""Where decompositions are registered."""

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {}


def decomposes(*targets: Any) -> Callable[[Function], Function]:
    """Registers a decomposition of each of ``targets``.

    Raises:
        ValueError: a target has one already.
    """

    def register(function: Function) -> Function:
        for target in targets:
            if target in DECOMPOSITIONS:
                raise ValueError(f"{target} has two decompositions")
            DECOMPOSITIONS[target] = function
        return function

    return register
