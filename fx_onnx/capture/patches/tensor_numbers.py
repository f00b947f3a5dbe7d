"""Keeps the number in a 0-d tensor that the model computes from sizes, as in ``torch.tensor(n) // 4``.

torch gives the number that Python reads from a tensor a new symbol, which nothing relates to the sizes: a later
comparison with a size then depends on data. Here the tensor remembers its number, an expression of the sizes, which
torch returns instead (``FakeTensor.item_memo``). Only integers are remembered: float32 tensors round.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from fx_onnx.torch_internals.torch_private import (
    FakeTensor,
    free_unbacked_symbols,
    known_item,
    remember_item,
    statically_known_true,
)

__all__ = ["remember_number"]


def _divide(first: Any, second: Any, *, rounding_mode: str | None = None) -> Any:
    """Returns the quotient if it is an integer. Both ways to round agree on positive numbers only."""
    is_positive = statically_known_true(first >= 0) and statically_known_true(second > 0)
    return first // second if rounding_mode == "floor" or (rounding_mode == "trunc" and is_positive) else None


def _swapped(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda first, second: function(second, first)


def _same(number: Any) -> Any:
    return number


_BINARY = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv}
_NUMBERS: dict[str, Callable[..., Any]] = {
    **{f"__{name}__": function for name, function in _BINARY.items()},
    **{f"__r{name}__": _swapped(function) for name, function in _BINARY.items()},
    **{name: _BINARY[name] for name in ("add", "sub", "mul")},
    "floor_divide": operator.floordiv,
    "div": _divide,
    "neg": operator.neg,
    "minimum": torch.sym_min,
    "maximum": torch.sym_max,
    **dict.fromkeys(("tensor", "as_tensor", "scalar_tensor", "long", "to", "clone", "detach"), _same),
}
"""What a function of torch computes, by its name. The result is remembered if it is an integer."""


def remember_number(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """Remembers the number in a result of a function of torch, if it follows from sizes.

    Args:
        function: A function of torch, as a mode sees it.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        result: What it returned.
    """
    compute = _NUMBERS.get(getattr(function, "__name__", ""))
    if compute is None or not (isinstance(result, FakeTensor) and result.ndim == 0 and result.dtype == torch.int64):
        return
    numbers = [_number(value) for value in (args[:1] if compute is _same else args)]
    if not numbers or any(value is None for value in numbers) or (kwargs and compute not in (_same, _divide)):
        return
    number = compute(*numbers) if compute is _same else compute(*numbers, **kwargs)
    if isinstance(number, torch.SymInt) and not free_unbacked_symbols(number):
        remember_item(result, number)


def _number(argument: Any) -> Any:
    """Returns an integer, or the one that a tensor remembers; None for everything else."""
    if isinstance(argument, FakeTensor):
        return known_item(argument) if argument.ndim == 0 else None
    return argument if type(argument) in (int, torch.SymInt) else None
