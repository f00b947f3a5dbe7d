"""Functions of ``math`` that accept symbolic numbers and return symbolic floats.

The functions need the value of a float. Other ones fail, or make a constant of the number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fx_onnx.torch_internals.torch_private import free_unbacked_symbols

__all__ = ["FUNCTIONS", "square_root"]


def square_root(number: Any) -> Any:
    """Returns the square root of a symbolic number."""
    return torch.sym_float(number) ** 0.5


# Functions of sizes as powers, quotients and sums, the operators that torch has for symbolic numbers. They are accurate
# to a few units in the last place of float64.
_OF_SIZES: Mapping[str, Callable[..., Any]] = {
    "exp": lambda x: math.e**x,
    "exp2": lambda x: 2.0**x,
    "fabs": abs,
    "hypot": lambda *numbers: square_root(sum(number * number for number in numbers)),
    "pow": lambda base, exponent: base**exponent,
    "sqrt": square_root,
}
_OF_DATA: Mapping[str, Callable[[Tensor], Tensor]] = {
    name: getattr(torch, name) for name in ("exp", "log", "log10", "cos", "sin", "tanh")
}


def _compute(name: str, plain: Callable[..., float], *numbers: Any) -> Any:
    """Calls a function of ``math``; its formula for symbolic numbers; or torch's function for a float from data."""
    if not any(isinstance(number, (torch.SymInt, torch.SymFloat)) for number in numbers):
        return plain(*numbers)
    if len(numbers) == 1 and name in _OF_DATA and free_unbacked_symbols(numbers[0]):
        return _OF_DATA[name](torch.full((), numbers[0], dtype=torch.float64)).item()
    return _OF_SIZES[name](*map(torch.sym_float, numbers)) if name in _OF_SIZES else plain(*numbers)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    name: partial(_compute, name, getattr(math, name)) for name in sorted({*_OF_SIZES, *_OF_DATA})
}
"""Replacements of functions of ``math``, by name."""
