"""Replaces transforms of ``torch.func`` by plain autograd.

Transforms wrap each tensor in a tensor of another class, and torch.export loses track of it there. It records the
backward pass of plain autograd. A nested transform then differentiates the results of the inner one, as it does with
the wrappers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fx_onnx.capture.diagnostics import calling_line
from fx_onnx.capture.patches.patching import Patch, apply_patches
from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.torch_internals.torch_private import pytree

__all__ = ["hessian", "jacfwd", "jvp", "nesting"]

_TRANSFORMS = "torch._functorch.eager_transforms"


def nesting(original: Callable[[], Any]) -> Callable[[], Any]:
    """Replaces ``grad_increment_nesting``, which starts a new level of wrappers, and what wraps within it."""

    @contextmanager
    def without_level() -> Iterator[int]:
        with apply_patches(_WRAPPERS):
            yield 0

    return without_level if all(patch.find() for patch in _WRAPPERS) else original


def _create_differentiable(tree: Any, level: int | None = None) -> Any:
    """Replaces ``_create_differentiable``: requires gradients of tensors that do not have any yet."""

    def require_grad(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.requires_grad:
            return tensor
        try:
            return tensor.requires_grad_()
        except RuntimeError as error:
            raise CaptureError(
                f"A torch.func transform such as grad or jacrev within vmap cannot be captured{calling_line()}; "
                "differentiate the sum over the batch instead.",
                id=MessageId.GRADIENTS,
            ) from error

    return pytree.tree_map_only(torch.Tensor, require_grad, tree)


def jvp(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``_jvp_with_argnums``: the result is the transpose of the vector-Jacobian product, which is linear."""
    return _jvp


def _jvp(
    func: Callable[..., Any], primals: Any, tangents: Any, argnums: Any, *, strict: bool = False, has_aux: bool
) -> Any:
    eager: Any = sys.modules[_TRANSFORMS]
    with torch.enable_grad():
        output, pull_back, *aux = eager._vjp_with_argnums(func, *primals, argnums=argnums, has_aux=has_aux)
        zeros = pytree.tree_map(lambda tensor: torch.zeros_like(tensor).requires_grad_(), output)
        leaves, tree = pytree.tree_flatten(zeros)
        transposed = pytree.tree_leaves(pull_back(zeros, create_graph=True))
        pairs = [pair for pair in zip(transposed, pytree.tree_leaves(tangents), strict=True) if pair[0].requires_grad]
        given = [tensor for tensor, _ in pairs], leaves, [tangent for _, tangent in pairs]
        gradients = torch.autograd.grad(*given, create_graph=True, materialize_grads=True) if pairs else leaves
    return (output, pytree.tree_unflatten(list(gradients), tree), *aux)


def jacfwd(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``torch.func.jacfwd`` by ``jacrev``, which computes the same Jacobian row by row."""

    def by_rows(
        func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, *, chunk_size: int | None = None,
        randomness: str = "error",
    ) -> Callable[..., Any]:  # fmt: skip
        return torch.func.jacrev(func, argnums, has_aux=has_aux, chunk_size=chunk_size)

    return by_rows


def hessian(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``torch.func.hessian``; the inner Jacobian uses no vmap, whose gradient torch cannot capture."""
    return lambda func, argnums=0: torch.func.jacrev(torch.func.jacrev(func, argnums, chunk_size=1), argnums)


_REASON = "torch.export loses track of tensors that a transform wraps."
_WRAPPERS = (
    Patch(
        f"{_TRANSFORMS}:_wrap_all_tensors",  # aliases, so that a gradient for them is not one for the tensors
        lambda tree, level: pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.view_as(tensor), tree),
        _REASON,
    ),
    Patch(f"{_TRANSFORMS}:_create_differentiable", _create_differentiable, _REASON),
    Patch(f"{_TRANSFORMS}:_undo_create_differentiable", lambda tree, level: tree, _REASON),
)
