"""Patches for torch.cond and associative_scan: torch runs them in cases in which it cannot capture them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fx_onnx.capture.patches.patching import PatchTable
from fx_onnx.core.torch_private import associative_scan as _torch_associative_scan
from fx_onnx.core.torch_private import pytree, scan

__all__ = ["PATCHES"]

_torch_cond = torch.cond


def _cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """Replaces ``torch.cond``: clones the results of the branches, because torch cannot capture aliases of operands."""
    return _torch_cond(pred, _with_cloned_results(true_fn), _with_cloned_results(false_fn), operands)


def _associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """Replaces ``associative_scan`` where a size is dynamic, because torch unrolls it for the sizes of the example.

    The replacement is a ``scan`` whose first step passes the first slice through. A scan that starts at the second
    slice would be simpler, but ONNX Runtime cannot run a scan over zero slices.
    """
    leaves, spec = pytree.tree_flatten(xs)
    if all(isinstance(size, int) for leaf in leaves for size in leaf.shape):
        return _torch_associative_scan(combine_fn, xs, dim, reverse, combine_mode)

    def step(carry: Any, slices: Any) -> Any:
        is_first, previous = carry
        pairs = zip(pytree.tree_leaves(slices), pytree.tree_leaves(combine_fn(previous, slices)), strict=True)
        result = pytree.tree_unflatten([torch.where(is_first, each, combined) for each, combined in pairs], spec)
        return (torch.zeros_like(is_first), result), _clone(result)

    zeros = pytree.tree_map(lambda leaf: torch.zeros_like(leaf.select(dim, 0)), xs)
    is_first = torch.ones((), dtype=torch.bool, device=leaves[0].device)
    with torch.no_grad():  # the gradient of torch's scan does not support a boolean in the carry
        return scan(step, (is_first, zeros), xs, dim=dim, reverse=reverse)[1]


def _with_cloned_results(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*operands: Any) -> Any:
        return _clone(function(*operands))

    return wrapped


def _clone(tree: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.clone, tree)


PATCHES: PatchTable = {
    ("torch._higher_order_ops.cond", "cond"): _cond,
    ("torch._higher_order_ops.associative_scan", "associative_scan"): _associative_scan,
}
