"""What stands for torch's control flow while torch captures it, where capture is narrower than torch itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fx_onnx.capture.patches.patching import Patches
from fx_onnx.core.torch_private import associative_scan as _torch_associative_scan
from fx_onnx.core.torch_private import pytree, scan

__all__ = ["PATCHES"]

_torch_cond = torch.cond


def _cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """``torch.cond``, whose branches may give back what they were given: torch refuses to capture aliases."""
    return _torch_cond(pred, _cloning(true_fn), _cloning(false_fn), operands)


def _associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """torch's function, as a scan where a size is dynamic: torch writes it out for the sizes of the example.

    A scan of all slices but the first would be shorter, but ONNX Runtime has none of no slices.
    """
    leaves, spec = pytree.tree_flatten(xs)
    if all(isinstance(size, int) for leaf in leaves for size in leaf.shape):
        return _torch_associative_scan(combine_fn, xs, dim, reverse, combine_mode)

    def step(carry: Any, slices: Any) -> Any:
        first, before = carry
        pairs = zip(pytree.tree_leaves(slices), pytree.tree_leaves(combine_fn(before, slices)), strict=True)
        found = pytree.tree_unflatten([torch.where(first, each, combined) for each, combined in pairs], spec)
        return (torch.zeros_like(first), found), _copied(found)

    begin = pytree.tree_map(lambda leaf: torch.zeros_like(leaf.select(dim, 0)), xs)
    first = torch.ones((), dtype=torch.bool, device=leaves[0].device)
    with torch.no_grad():  # torch's scan has no gradient with a boolean among what is carried
        return scan(step, (first, begin), xs, dim=dim, reverse=reverse)[1]


def _cloning(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*operands: Any) -> Any:
        return _copied(function(*operands))

    return run


def _copied(tree: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.clone, tree)


PATCHES: Patches = {
    ("torch._higher_order_ops.cond", "cond"): _cond,
    ("torch._higher_order_ops.associative_scan", "associative_scan"): _associative_scan,
}
