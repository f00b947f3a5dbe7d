"""The tables of decompositions, and the lookup of torch's operators by name.

``DECOMPOSITIONS`` holds the decompositions of operators on real tensors, and ``COMPLEX`` those of operators on complex
tensors, which compute on pairs of real ones. ``SYMBOLIC`` holds those for numbers that are expressions of dynamic
sizes. All skip an operator that the installed torch does not have.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from fx_onnx.decompositions import _torch_private

Function = TypeVar("Function", bound=Callable[..., Any])


# ---------------------------------------------------------------- operators by name


class Operator:
    """An operator, or one of its overloads, found by name; the installed torch may not have the operator.

    ``aten.add`` is an ``Operator``; ``aten.add.Tensor`` is torch's overload, or an ``Operator`` when torch has none.

    Attributes:
        torch_operator: torch's operator with all its overloads, or None.
    """

    def __init__(self, name: str, torch_operator: Any) -> None:
        self.name = name
        self.torch_operator = torch_operator

    def __getattr__(self, overload: str) -> Any:
        if overload.startswith("__"):  # copy, pickle and inspect ask for such names
            raise AttributeError(overload)
        operator = getattr(self.torch_operator, overload, None)
        if operator is None:
            return Operator(f"{self.name}.{overload}", None)
        setattr(self, overload, operator)  # the next look-up does not come here
        return operator

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.torch_operator is None:
            raise NotImplementedError(
                f"torch {torch.__version__} has no operator {self.name}. Use a version of torch that has it."
            )
        return self.torch_operator(*args, **kwargs)


class Operators:
    """The operators of a namespace of ``torch.ops``, as attributes: ``aten.add.Tensor``."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> Operator:
        packet = getattr(getattr(torch.ops, self._namespace), name, None)
        if packet is None and name.startswith("__"):  # aten::__and__ is an operator; other such names are Python's
            raise AttributeError(name)
        operator = Operator(f"{self._namespace}::{name}", packet)
        if packet is not None:
            setattr(self, name, operator)
        return operator


aten = Operators("aten")

_torch_private.register_quantized_decomposed()
quantized = Operators("quantized_decomposed")


# ---------------------------------------------------------------- decompositions of operators on real tensors

DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {}


def decomposes(*targets: Any) -> Callable[[Function], Function]:
    """Registers a decomposition of each of ``targets``.

    Args:
        targets: overloads such as ``aten.add.Tensor``; or, for operators of libraries that may not be installed, names
            such as ``"torchvision::roi_pool"``, which cover all overloads.

    Raises:
        ValueError: a target already has a decomposition.
    """
    return _registers(DECOMPOSITIONS, targets)


# ---------------------------------------------------------------- forms of operators that take symbolic numbers

SYMBOLIC: dict[Any, Callable[..., Any]] = {}


def takes_symbols(*targets: Any) -> Callable[[Function], Function]:
    """Registers a form of each of ``targets`` in which the numbers may be symbolic: expressions of dynamic sizes.

    torch converts such a number to a constant of the example where the operator's schema declares a plain number.

    Args:
        targets: overloads such as ``aten.diagonal.default``, or functions of torch that are not operators.

    Raises:
        ValueError: a target already has such a form.
    """
    return _registers(SYMBOLIC, targets)


# ---------------------------------------------------------------- decompositions of operators on complex tensors


class Complex(NamedTuple):
    """A complex tensor as a pair of real tensors of the same shape and dtype."""

    real: Tensor
    imag: Tensor


Number = bool | int | float | complex
Operand = Complex | Tensor | Number

COMPLEX: dict[Any, Callable[..., Any]] = {}


def complex_decomposes(*targets: Any) -> Callable[[Function], Function]:
    """Registers the decomposition of each of ``targets`` into operators on real tensors.

    The function has the operator's parameters. It receives each complex tensor as a ``Complex`` and returns a
    ``Complex`` for each complex result. The dtype of the two parts may differ from that of the operator's result: the
    caller casts them.

    Args:
        targets: overloads such as ``aten.add.Tensor``, or operators such as ``aten.sin`` with all their overloads.

    Raises:
        ValueError: a target already has a decomposition.
    """
    return _registers(COMPLEX, targets)


def _registers(table: dict[Any, Callable[..., Any]], targets: tuple[Any, ...]) -> Callable[[Function], Function]:
    """Returns a decorator that enters a function in a table, for each target that the installed torch has."""

    def register(function: Function) -> Function:
        for target in targets:
            key = target.torch_operator if isinstance(target, Operator) else target
            if key is None:
                continue
            if key in table:
                raise ValueError(f"{key} has two decompositions. Remove one of them.")
            table[key] = function
        return function

    return register
