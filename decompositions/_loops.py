"""Loops whose steps depend on each other: unrolled if there are few steps, and torch's ``while_loop`` otherwise.

A step is written once for both forms. It receives its number as a tensor, so it reads rows and columns by ``slice_at``
and writes them under masks of indices. All tensors keep their shapes.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fx_onnx.decompositions import _torch_private

MAX_UNROLLED_STEPS = 4
"""Longer loops are not unrolled: an unrolled step has foldable constants, but adds about a dozen operators."""

Tensors = tuple[Tensor, ...]


def slice_at(x: Tensor, axis: int, k: Tensor) -> Tensor:
    """Returns slice ``k`` of an axis; the axis stays, with size 1."""
    return x.index_select(axis, k)


def indices_along(x: Tensor, axis: int) -> Tensor:
    """Returns the indices 0, 1, … along an axis, shaped as a row (axis -1) or a column (axis -2)."""
    indices = torch.arange(x.size(axis), device=x.device)
    return indices if axis == -1 else indices.unsqueeze(-1)


def for_loop(count: int, step: Callable[..., Tensors], carry: Tensors, constants: Tensors = ()) -> Tensors:
    """Returns the carry after ``carry = step(k, *carry, *constants)`` for k = 0, 1, … count - 1.

    Args:
        count: may be symbolic.
        step: returns new tensors of the shapes and dtypes of the carry; ``k`` is a 0-d int64 tensor. It may use no
            other tensors than its arguments.
        carry: the tensors that a step passes to the next one.
        constants: the tensors that every step reads.
    """
    if isinstance(count, int) and count <= MAX_UNROLLED_STEPS:
        for k in range(count):
            carry = step(torch.full((), k), *carry, *constants)
        return carry
    return rolled_for_loop(count, step, carry, constants)


def rolled_for_loop(count: int, step: Callable[..., Tensors], carry: Tensors, constants: Tensors = ()) -> Tensors:
    """Returns the result of ``for_loop``, never unrolled: for steps of many operators, or inside another loop."""
    end = torch.full((), count)

    def condition(k: Tensor, *rest: Tensor) -> Tensor:
        return k < rest[-1]

    def body(k: Tensor, *rest: Tensor) -> Tensors:
        return k + 1, *step(k, *rest[:-1])

    return while_loop(condition, body, (torch.full((), 0), *carry), (*constants, end))[1:]


def while_loop(
    condition: Callable[..., Tensor], body: Callable[..., Tensors], carry: Tensors, constants: Tensors = ()
) -> Tensors:
    """Repeats ``carry = body(*carry, *constants)`` while ``condition(*carry, *constants)``, a 0-d bool, is true."""
    return _torch_private.while_loop_operator(condition, body, tuple(map(_plain, carry)), tuple(map(_plain, constants)))


def _plain(tensor: Tensor) -> Tensor:
    """Returns the tensor with a lazy conjugation resolved, because a loop of torch rejects lazily conjugated inputs."""
    return tensor.resolve_conj() if tensor.is_complex() else tensor
