"""Keeps floats with a dynamic value symbolic, where an operator of torch has a plain float as its parameter.

The replacements pass a tensor, or the result of simpler operators, where torch would need the value of the float. Other
functions that need the value fail, and the error names the line of the forward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.core.torch_private import free_unbacked_symbols
from fx_onnx.decompositions import activation, linalg, normalization

__all__ = ["FLOAT_REPLACEMENTS", "has_symbolic_float", "keep_math_symbolic"]


def has_symbolic_float(*arguments: Any) -> bool:
    """Returns whether one of the arguments is a symbolic float."""
    return any(isinstance(argument, torch.SymFloat) for argument in arguments)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Replaces ``scaled_dot_product_attention``: the query is multiplied by the scale."""
    scaled = query if scale is None else query * scale
    options: dict[str, Any] = {"scale": None if scale is None else 1.0, "enable_gqa": enable_gqa}
    return F.scaled_dot_product_attention(scaled, key, value, attn_mask, dropout_p, is_causal, **options)


def _hardtanh(input: Tensor, min_val: Any = -1.0, max_val: Any = 1.0, inplace: bool = False) -> Tensor:
    """Replaces ``hardtanh``, which compares its limits."""
    return (torch.clamp_ if inplace else torch.clamp)(input, min_val, max_val)


def _softshrink(input: Tensor, lambd: Any = 0.5) -> Tensor:
    """Replaces ``softshrink``, which asks whether ``lambd`` is negative; NaN stays NaN."""
    return torch.where(torch.abs(input) > lambd, input - torch.sign(input) * lambd, input * 0)


def _rrelu(
    input: Tensor, lower: Any = 1 / 8, upper: Any = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Replaces ``rrelu``."""
    result = activation.rrelu(input, lower, upper, training)
    return input.copy_(result) if inplace else result


def _pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Tensor:
    """Replaces ``pad``: the value fills the places that a padded mask has."""
    inside = F.pad(torch.ones_like(input, dtype=torch.bool), pad)
    return torch.where(inside, F.pad(input, pad, mode), torch.full((), value, dtype=input.dtype))


FLOAT_REPLACEMENTS: Mapping[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: _attention,
    F.hardtanh: _hardtanh,
    F.softshrink: _softshrink,
    F.rrelu: _rrelu,
    F.pad: _pad,
    F.rms_norm: normalization.rms_norm,
    torch.addmm: linalg.addmm,
    torch.Tensor.addmm: linalg.addmm,
    torch.addmv: linalg.addmv,
    torch.Tensor.addmv: linalg.addmv,
    torch.addr: linalg.addr,
    torch.Tensor.addr: linalg.addr,
}
"""Replacements for calls that have a symbolic float among their arguments."""


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
    if len(arguments) == 1 and has_symbolic_float(*arguments) and free_unbacked_symbols(arguments[0]):
        return function(torch.full((), arguments[0], dtype=torch.float64)).item()
    return plain(*arguments)
