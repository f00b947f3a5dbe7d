"""Steps that follow each other: written out where they are few, as the body of a loop where they are not.

A step is written once, for both. It knows which step it is from a tensor, so it takes rows and columns by ``pick`` and
changes them under masks of indices: whatever it is given keeps its sizes.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fx_onnx.decompositions import _torch_private

UNROLLED = 4
"""Up to so many steps are written out: each is a dozen operators, and the constants among them fold."""

Tensors = tuple[Tensor, ...]


def pick(x: Tensor, axis: int, k: Tensor) -> Tensor:
    """The slice ``k`` of an axis, which stays, with a size of 1."""
    return x.index_select(axis, k)


def indices(x: Tensor, axis: int) -> Tensor:
    """0, 1, … along an axis, which is -1 (a row) or -2 (a column)."""
    found = torch.arange(x.size(axis), device=x.device)
    return found if axis == -1 else found.unsqueeze(-1)


def each(count: int, step: Callable[..., Tensors], carry: Tensors, given: Tensors = ()) -> Tensors:
    """The carry after ``carry = step(k, *carry, *given)`` for k = 0, 1, … count - 1.

    Args:
        count: may be symbolic.
        step: gives new tensors of the sizes and dtypes of the carry; ``k`` is a 0-d int64. It uses no other tensors
            than those that it is given.
        carry: what goes from step to step.
        given: what each step reads.
    """
    if isinstance(count, int) and count <= UNROLLED:
        for k in range(count):
            carry = step(torch.full((), k), *carry, *given)
        return carry
    return looped(count, step, carry, given)


def looped(count: int, step: Callable[..., Tensors], carry: Tensors, given: Tensors = ()) -> Tensors:
    """``each``, never written out: for steps of many operators, or within a loop as it is."""
    end = torch.full((), count)

    def more(k: Tensor, *rest: Tensor) -> Tensor:
        return k < rest[-1]

    def body(k: Tensor, *rest: Tensor) -> Tensors:
        return k + 1, *step(k, *rest[:-1])

    return until(more, body, (torch.full((), 0), *carry), (*given, end))[1:]


def until(more: Callable[..., Tensor], body: Callable[..., Tensors], carry: Tensors, given: Tensors = ()) -> Tensors:
    """The carry after ``carry = body(*carry, *given)`` as long as ``more(*carry, *given)``, which gives a 0-d bool."""
    return _torch_private.while_loop(more, body, tuple(map(_plain, carry)), tuple(map(_plain, given)))


def _plain(tensor: Tensor) -> Tensor:
    """The tensor not lazily conjugated, as which torch refuses it to a loop."""
    return tensor.resolve_conj() if tensor.is_complex() else tensor
