"""Tries sizes that the example does not have: tensors of these sizes, and the conditions that torch recorded."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import sympy
import torch

from fx_onnx.sizes.size_text import expression_text
from fx_onnx.torch_internals.torch_private import pytree

__all__ = [
    "SIZES",
    "arguments_of_shapes",
    "condition_of",
    "is_false",
    "is_identity",
    "resized",
    "resized_empty",
    "with_other_values",
]

# The sizes for which a condition on one, two, three or more dims is evaluated.
SIZES: tuple[tuple[int, ...], ...] = (
    (*range(2, 34), 48, 63, 64, 65, 100, 127, 128, 129, 200, 255, 256, 257, 512, 513, 1000, 1024, 2048, 4096, 65536),
    (2, 3, 4, 5, 7, 8, 16, 33, 100, 513, 4096),
    (2, 3, 5, 8, 33, 513),
    (2, 5, 33),
)
_MATH = "floor ceil sqrt exp log log2 sin cos tan asin acos atan sinh cosh tanh asinh"
_FUNCTIONS = {name: getattr(math, name) for name in _MATH.split()} | {
    function.__name__: function for function in (int, float, round, max, min)
}
"""The functions in the text of a condition."""
_SIZES = (0, 1, 2, 3, 5, 8, 33, 513, 4096, 2**40)
_SIZES_OF_ONE = (*range(130), *(2**power for power in range(8, 41)))


@lru_cache(maxsize=512)
def condition_of(condition: Any, symbols: tuple[sympy.Symbol, ...]) -> Callable[..., bool]:
    """Returns a sympy condition as a function of the sizes of the symbols, in this order.

    The function is compiled from the text of the condition, so that it is a hundred times as fast as a substitution by
    sympy. It is true where the condition is undefined.
    """
    names = [f"n{index}" for index in range(len(symbols))]
    text = expression_text(condition, dict(zip(map(str, symbols), names, strict=True)))
    function = eval(f"lambda {', '.join(names)}: {text}", {"__builtins__": {}, **_FUNCTIONS})

    def holds(*sizes: int) -> bool:
        try:
            return bool(function(*sizes))
        except NameError:  # a function that is not in the table
            return not is_false(condition, dict(zip(symbols, map(sympy.Integer, sizes), strict=True)))
        except ArithmeticError:
            return True

    return holds


def is_false(condition: Any, sizes: Mapping[sympy.Symbol, sympy.Integer]) -> bool:
    """Returns whether a sympy condition is false for these sizes. It is not where it is undefined."""
    try:
        return condition.xreplace(sizes) is sympy.false
    except ZeroDivisionError:  # the condition is undefined for these sizes
        return False


def is_identity(condition: Any) -> bool:
    """Returns whether a condition on up to three sizes holds for all that are tried, the numbers in it among them."""
    symbols = tuple(sorted(condition.free_symbols, key=str))
    numbers = {int(number) + step for number in condition.atoms(sympy.Integer) for step in (-1, 0, 1)}
    tried = _SIZES_OF_ONE if len(symbols) == 1 else _SIZES
    sizes = sorted({size for size in (*tried, *numbers) if size >= 0})
    points = itertools.product(sizes, repeat=len(symbols))
    return len(symbols) <= 3 and all(itertools.starmap(condition_of(condition, symbols), points))


def resized(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Returns a copy whose axes are cut, or repeat their values; an empty axis becomes zeros."""
    for axis, size in enumerate(shape):
        old = tensor.shape[axis]
        if old:
            tensor = tensor.index_select(axis, torch.arange(size, device=tensor.device) % old)
        elif size:
            tensor = tensor.new_zeros([*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]])
    return tensor.clone()


def resized_empty(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Returns a tensor without values that differs from another one in its shape."""
    return torch.empty(shape, dtype=tensor.dtype, device=tensor.device, requires_grad=tensor.requires_grad)


def arguments_of_shapes(
    leaves: Iterable[Any],
    spec: pytree.TreeSpec,
    shapes: Iterable[Sequence[int]],
    made: Callable[[torch.Tensor, Sequence[int]], torch.Tensor],
) -> tuple[Any, Any]:
    """Returns the ``(args, kwargs)`` of leaves of other shapes.

    Args:
        leaves: The leaves of the arguments.
        spec: Their structure.
        shapes: The shape of each tensor; the value of an integer as the only size; other leaves stay as they are.
        made: Makes a tensor from one of the leaves and a shape.
    """

    def new(leaf: Any, shape: Sequence[int]) -> Any:
        if isinstance(leaf, torch.Tensor):
            return made(leaf, shape)
        return shape[0] if shape and not isinstance(leaf, (float, bool)) else leaf

    leaves = list(itertools.starmap(new, zip(leaves, shapes, strict=True)))
    arguments: tuple[Any, Any] = pytree.tree_unflatten(leaves, spec)
    return arguments


def with_other_values(seed: int = 0) -> Callable[[torch.Tensor, Sequence[int]], torch.Tensor]:
    """Returns what makes tensors of other shapes, with noise added to floats, and with alternating values of masks.

    Zeros in the example, or a mask of ones, would hide a difference. A mask has no other values than 0 and 1. The noise
    does not come from torch's own random state, which belongs to the user.
    """
    generator = torch.Generator().manual_seed(seed)

    def made(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        tensor = resized(tensor, shape)
        if tensor.is_floating_point():
            return tensor + torch.rand(tensor.shape, generator=generator).to(tensor) if tensor.ndim else tensor
        if tensor.is_complex() or not tensor.ndim or not bool(((tensor == 0) | (tensor == 1)).all()):
            return tensor
        return (torch.arange(tensor.numel(), device=tensor.device) % 2).reshape(tensor.shape).to(tensor.dtype)

    return made
