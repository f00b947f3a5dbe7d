"""Rules on shapes whose sizes are numbers or opaque symbols.

A symbol is any hashable object: a sympy expression while FX graphs are processed, the name of a dim in an ONNX model.
Two symbols are known to be equal only if they compare equal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

S = TypeVar("S", bound=Hashable)


def broadcast_shapes(*shapes: Sequence[int | S]) -> tuple[int | S, ...] | None:
    """Returns the common shape of broadcast operands.

    Returns None if two sizes other than 1 meet on an axis and are not known to be equal.
    """
    result: list[int | S] = []
    for axis in range(-max(map(len, shapes)), 0):
        common: int | S = 1
        for sizes in shapes:
            if len(sizes) >= -axis and (size := sizes[axis]) != 1 and size != common:
                if common != 1:
                    return None
                common = size
        result.append(common)
    return tuple(result)


def constant_reshape(
    old: Sequence[int | S] | None, new: Sequence[int | S], may_be_zero: Callable[[S], bool]
) -> list[int] | None:
    """Returns a constant shape input for an ONNX Reshape from ``old`` to ``new``.

    If ``new`` has symbols, the Reshape must have allowzero=0, because a 0 in its shape input then copies a size.
    A single symbol becomes -1, and ONNX infers its size. Among several symbols, those that stay on their axis become 0,
    which copies the size, and one other symbol may become -1. ONNX cannot infer a size of an empty tensor, so the
    function returns None if -1 would occur together with a copied symbol that may be 0.

    Args:
        old: the shape before; None if it is unknown.
        new: the shape after, with the same number of elements.
        may_be_zero: returns whether a symbol may be 0 at run time.

    Returns:
        The shape input, or None if no constant expresses ``new``.
    """
    symbols = {i: size for i, size in enumerate(new) if not isinstance(size, int)}
    if not symbols:
        return [size for size in new if isinstance(size, int)]
    if 0 in new:
        return None
    copied = {i for i, size in symbols.items() if len(symbols) > 1 and old and i < len(old) and old[i] == size}
    inferred = len(symbols) - len(copied)
    if inferred > 1 or (inferred and any(may_be_zero(symbols[i]) for i in copied)):
        return None
    return [size if isinstance(size, int) else 0 if i in copied else -1 for i, size in enumerate(new)]
