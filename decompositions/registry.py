"""Where decompositions are registered: of operators on real tensors, and of those on complex ones."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])

DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {}


def decomposes(*targets: Any) -> Callable[[Function], Function]:
    """Registers a decomposition of each of ``targets``.

    Raises:
        ValueError: a target has one already.
    """

    return _registers(DECOMPOSITIONS, "decompositions", targets)


class Complex(NamedTuple):
    """A complex tensor: two real ones of the same sizes and dtype."""

    real: Tensor
    imag: Tensor


Number = bool | int | float | complex
Operand = Complex | Tensor | Number

COMPLEX: dict[Any, Callable[..., Any]] = {}


def complex_decomposes(*targets: Any) -> Callable[[Function], Function]:
    """Registers what each of ``targets`` (an operator, or an operator with all its overloads) is in real numbers.

    The function has the operator's parameters. A complex tensor among its arguments is a ``Complex``, and so is one
    among its results, whose parts may still be of another dtype than the operator's.

    Raises:
        ValueError: a target has one already.
    """

    return _registers(COMPLEX, "complex decompositions", targets)


def _registers(
    table: dict[Any, Callable[..., Any]], kind: str, targets: tuple[Any, ...]
) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        for target in targets:
            if target in table:
                raise ValueError(f"{target} has two {kind}")
            table[target] = function
        return function

    return register
