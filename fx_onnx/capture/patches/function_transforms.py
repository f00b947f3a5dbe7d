"""Patches for ``torch.func.grad``, ``vjp``, ``jvp``, ``jacrev``, ``jacfwd`` and ``hessian`` in non-strict mode.

These transforms wrap each tensor in a tensor of another class, and torch.export loses track of it there. The
replacements use plain autograd, whose backward pass torch.export records. A nested transform then differentiates the
results of the inner one, as it does with the wrappers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fx_onnx.capture.diagnostics import calling_line
from fx_onnx.capture.patches.patching import PatchTable
from fx_onnx.core.errors import CaptureError
from fx_onnx.core.messages import MessageId
from fx_onnx.core.torch_private import pytree

__all__ = ["transform_patches"]

_TRANSFORMS = "torch._functorch.eager_transforms"


def transform_patches() -> PatchTable:
    """Returns the patches; none if the installed torch implements its transforms with other functions.

    Without the patches, a forward that calls a transform is refused after the capture.
    """
    module = sys.modules.get(_TRANSFORMS)
    return _PATCHES if all(hasattr(module, name) for _, name in _PATCHES) else {}


@contextmanager
def _nesting() -> Iterator[int]:
    """Replaces ``grad_increment_nesting``, which starts a new level of wrappers."""
    yield 0


def _alias(tree: Any, level: int) -> Any:
    """Replaces ``_wrap_all_tensors``: returns aliases, so that a gradient for them is not one for the tensors."""
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.view_as(tensor), tree)


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


def _same(tree: Any, level: int) -> Any:
    """Replaces ``_undo_create_differentiable``, which removes the wrappers."""
    return tree


def _jvp(
    func: Callable[..., Any], primals: Any, tangents: Any, argnums: Any, *, strict: bool = False, has_aux: bool
) -> Any:
    """Replaces ``_jvp_with_argnums``: the result is the transpose of the vector-Jacobian product, which is linear."""
    eager: Any = sys.modules[_TRANSFORMS]
    with torch.enable_grad():
        output, pull_back, *aux = eager._vjp_with_argnums(func, *primals, argnums=argnums, has_aux=has_aux)
        zeros = pytree.tree_map(lambda tensor: torch.zeros_like(tensor).requires_grad_(), output)
        leaves, tree = pytree.tree_flatten(zeros)
        transposed = pytree.tree_leaves(pull_back(zeros, create_graph=True))
        pairs = [pair for pair in zip(transposed, pytree.tree_leaves(tangents), strict=True) if pair[0].requires_grad]
        given = [tensor for tensor, _ in pairs], leaves, [tangent for _, tangent in pairs]
        found = torch.autograd.grad(*given, create_graph=True, materialize_grads=True) if pairs else leaves
    return (output, pytree.tree_unflatten(list(found), tree), *aux)


def _jacfwd(
    func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, *, chunk_size: int | None = None,
    randomness: str = "error",
) -> Callable[..., Any]:  # fmt: skip
    """Replaces ``torch.func.jacfwd`` by ``jacrev``, which computes the same Jacobian row by row."""
    return torch.func.jacrev(func, argnums, has_aux=has_aux, chunk_size=chunk_size)


def _hessian(func: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """Replaces ``torch.func.hessian``. The inner Jacobian uses no vmap, because torch cannot capture its gradient."""
    return torch.func.jacrev(torch.func.jacrev(func, argnums, chunk_size=1), argnums)


_PATCHES: PatchTable = {
    (_TRANSFORMS, "grad_increment_nesting"): _nesting,
    (_TRANSFORMS, "_wrap_all_tensors"): _alias,
    (_TRANSFORMS, "_create_differentiable"): _create_differentiable,
    (_TRANSFORMS, "_undo_create_differentiable"): _same,
    (_TRANSFORMS, "_jvp_with_argnums"): _jvp,
    (_TRANSFORMS, "jacfwd"): _jacfwd,
    (_TRANSFORMS, "hessian"): _hessian,
}
