"""Keeps floats with a dynamic value symbolic, where an operator of torch has a plain float as its parameter.

The replacements pass a tensor, or the result of simpler operators, where torch would need the value of the float. Other
functions that need the value fail, and the error names the line of the forward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.core.torch_private import free_unbacked_symbols

__all__ = ["keep_math_symbolic"]


# --- Python's own functions -------------------------------------------------------------------------------------------

_MATH_FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    name: getattr(torch, name)
    for name in ("erf", "exp", "expm1", "log", "log10", "log1p", "log2", "cos", "sin", "tan", "tanh")
}


# Functions of sizes as powers, quotients and sums, the operators that torch has for symbolic numbers. They are accurate
# to a few units in the last place of float64.
_SIZE_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "exp": lambda x: math.e**x,
    "exp2": lambda x: 2.0**x,
    "fabs": abs,
    "hypot": lambda *numbers: sum(number * number for number in numbers) ** 0.5,
    "pow": lambda base, exponent: base**exponent,
}


@contextmanager
def keep_math_symbolic() -> Iterator[None]:
    """Lets functions of ``math`` accept a number with a dynamic value within the context, and return such a float."""
    with ExitStack() as stack:
        for name, formula in _SIZE_FUNCTIONS.items():
            stack.enter_context(replace_attribute(math, name, partial(_compute_of_sizes, getattr(math, name), formula)))
        for name, function in _MATH_FUNCTIONS.items():
            replacement = partial(_compute, getattr(math, name), function)
            stack.enter_context(replace_attribute(math, name, replacement))
        yield


def _compute_of_sizes(plain: Callable[..., float], formula: Callable[..., Any], *numbers: Any) -> Any:
    """Calls a function of ``math``, or a formula for it if a number is symbolic."""
    if any(isinstance(number, (torch.SymInt, torch.SymFloat)) for number in numbers):
        return formula(*(torch.sym_float(number) for number in numbers))
    return plain(*numbers)


def _compute(plain: Callable[..., float], function: Callable[[Tensor], Tensor], *arguments: Any) -> Any:
    """Calls a function of ``math``, or torch's function of the same name for a float that is not a size."""
    if len(arguments) == 1 and isinstance(arguments[0], torch.SymFloat) and free_unbacked_symbols(arguments[0]):
        return function(torch.full((), arguments[0], dtype=torch.float64)).item()
    return plain(*arguments)
