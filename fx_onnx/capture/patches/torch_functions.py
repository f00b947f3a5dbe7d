"""Replacements of functions of torch that it runs in cases in which it cannot capture them.

The number of rows of `x[n - 3:]` is an expression for every n. torch does not know the sign of the bound, and gives the
size a new symbol, which nothing relates to n.

Transforms of ``torch.func`` wrap each tensor in a tensor of another class, and torch.export loses track of it there.
The replacements use plain autograd, whose backward pass torch.export records. A nested transform then differentiates
the results of the inner one, as it does with the wrappers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as _torch_attention

import fx_onnx.torch_internals.custom_ops  # noqa: F401  defines fx_onnx::lstsq
from fx_onnx.capture.diagnostics import calling_line
from fx_onnx.capture.patches.patching import Around, Patch, apply_patches
from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.torch_internals.guard_private import example_size
from fx_onnx.torch_internals.size_private import in_fewest_terms, is_never_negative
from fx_onnx.torch_internals.torch_private import free_unbacked_symbols, pytree, scan, statically_known_true

__all__ = ["PATCHES", "allclose", "assert_", "equal", "is_nonzero", "lstsq"]


def lstsq(input: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """Replaces ``torch.linalg.lstsq`` by an operator that has a shape function; the default driver is that of CPUs."""
    return torch.return_types.linalg_lstsq(  # type: ignore[attr-defined]  # torch creates it when it is imported
        torch.ops.fx_onnx.lstsq(input, b, rcond, driver=driver or "gelsy")
    )


def _attention(*args: Any, **kwargs: Any) -> Tensor:
    """Replaces ``scaled_dot_product_attention``: a symbolic ``is_causal``, which it refuses, is that of the example."""
    args, kwargs = pytree.tree_map_only(torch.SymBool, bool, (args, kwargs))
    return _torch_attention(*args, **kwargs)


def equal(input: Tensor, other: Tensor) -> bool:
    """Replaces ``torch.equal``: converts a tensor to a bool."""
    same_rank = input.ndim == other.ndim
    same_sizes = same_rank and all(one == two for one, two in zip(input.shape, other.shape, strict=True))
    return same_sizes and bool((input == other).all())


def allclose(input: Tensor, other: Tensor, *tolerances: Any, **options: Any) -> bool:
    """Replaces ``torch.allclose``: converts a tensor to a bool."""
    return bool(torch.isclose(input, other, *tolerances, **options).all())


def is_nonzero(input: Tensor) -> bool:
    """Replaces ``torch.is_nonzero``: converts a tensor to a bool."""
    return bool(input)


def assert_(condition: Any, message: Any) -> None:
    """Replaces ``torch._assert``: torch 2.15 records an operator, also where the model catches the exception."""
    if not condition:
        raise AssertionError(message)


def _apply(torch_apply: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Replaces ``nn.Module._apply`` where no tensor changes, as in ``self.to(x.device)``; else torch's own refuses."""

    def apply(module: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        with torch.no_grad():
            if all(fn(tensor) is tensor for tensor in (*module.parameters(recurse), *module.buffers(recurse))):
                return module
        return torch_apply(module, fn, recurse)

    return apply


def _bound(bound: Callable[[Any, Any], Any], size: Any, index: Any) -> Any:
    """Returns the position of a bound of a slice in an axis: between 0 and the size of the axis.

    Args:
        bound: torch's own function. It returns None if it does not know whether the index is negative.
        size: The size of the axis.
        index: The index in the slice; negative from the end.
    """
    multiple = in_fewest_terms(index)
    is_within = statically_known_true(index <= size) or is_never_negative(size - index)
    if is_within and statically_known_true(multiple >= 0):
        return multiple
    position = bound(size, index)
    if position is not None or free_unbacked_symbols((size, index)):
        return position
    is_negative = torch.sym_min(torch.sym_max(-index, 0), 1)
    return torch.sym_min(torch.sym_max(index, 0), size) + is_negative * torch.sym_max(index + size, 0)


# --- control flow -----------------------------------------------------------------------------------------------------


def _cond(torch_cond: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``torch.cond``: clones the results of the branches."""

    def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
        return torch_cond(pred, _with_cloned_results(true_fn), _with_cloned_results(false_fn), operands)

    return cond


def _associative_scan(torch_scan: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces ``associative_scan`` where a size is dynamic.

    The replacement is a ``scan`` whose first step passes the first slice through. A scan that starts at the second
    slice would be simpler, but ONNX Runtime cannot run a scan over zero slices.
    """

    def associative_scan(
        combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
    ) -> Any:
        leaves, spec = pytree.tree_flatten(xs)
        if all(isinstance(size, int) for leaf in leaves for size in leaf.shape):
            return torch_scan(combine_fn, xs, dim, reverse, combine_mode)

        def step(carry: Any, slices: Any) -> Any:
            is_first, previous = carry
            pairs = zip(pytree.tree_leaves(slices), pytree.tree_leaves(combine_fn(previous, slices)), strict=True)
            result = pytree.tree_unflatten([torch.where(is_first, leaf, combined) for leaf, combined in pairs], spec)
            return (torch.zeros_like(is_first), result), _clone(result)

        slices = pytree.tree_map(lambda leaf: leaf.movedim(dim, 0), xs)  # torch 2.12 returns the axis of a scan first
        zeros = pytree.tree_map(lambda leaf: torch.zeros_like(leaf[0]), slices)
        is_first = torch.ones((), dtype=torch.bool, device=leaves[0].device)
        with torch.no_grad():  # the gradient of torch's scan does not support a boolean in the carry
            _, results = scan(step, (is_first, zeros), slices, reverse=reverse)
        return pytree.tree_map(lambda leaf: leaf.movedim(0, dim), results)

    return associative_scan


def _with_cloned_results(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*operands: Any) -> Any:
        return _clone(function(*operands))

    return wrapped


def _clone(tree: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.clone, tree)


# --- transforms -------------------------------------------------------------------------------------------------------

_TRANSFORMS = "torch._functorch.eager_transforms"


def _nesting(original: Callable[[], Any]) -> Callable[[], Any]:
    """Replaces ``grad_increment_nesting``, which starts a new level of wrappers, and what wraps within it."""

    @contextmanager
    def nesting() -> Iterator[int]:
        with apply_patches(_WRAPPERS):
            yield 0

    return nesting if all(patch.find() for patch in _WRAPPERS) else original


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
        gradients = torch.autograd.grad(*given, create_graph=True, materialize_grads=True) if pairs else leaves
    return (output, pytree.tree_unflatten(list(gradients), tree), *aux)


def _remove_batch_dim(remove: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Replaces what ends a vmap: the axis of the batch comes first, and is moved by an operator that torch traces."""

    def removed(tensor: torch.Tensor, level: int, batch_size: Any, out_dim: int) -> torch.Tensor:
        first = remove(tensor, level, batch_size, 0)
        return first.movedim(0, out_dim) if out_dim else first

    return removed


def _jacfwd(
    func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, *, chunk_size: int | None = None,
    randomness: str = "error",
) -> Callable[..., Any]:  # fmt: skip
    """Replaces ``torch.func.jacfwd`` by ``jacrev``, which computes the same Jacobian row by row."""
    return torch.func.jacrev(func, argnums, has_aux=has_aux, chunk_size=chunk_size)


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

_ALIASES = "torch cannot capture a branch whose results are aliases of operands."
_UNROLLED = "torch unrolls the scan for the sizes of the example."
PATCHES = (
    Patch(
        "torch.nn.functional:scaled_dot_product_attention",
        _attention,
        "It refuses a symbolic is_causal before a mode sees the call.",
        strict=False,
    ),
    Patch(
        "torch._subclasses.fake_impls:_compute_slice_index",
        Around(lambda bound: partial(_bound, bound)),
        "The size of a slice is a new symbol where torch does not know the sign of a bound.",
    ),
    Patch(
        "opt_einsum.parser:get_shape",  # torch.einsum uses the library for three or more operands where it is installed
        Around(lambda shape_of: lambda operand: tuple(map(example_size, shape_of(operand)))),
        "It would fix all sizes; they decide in which order operands are multiplied, which changes no result.",
        strict=False,
    ),
    Patch("torch.nn:Module._apply", Around(_apply), "torch.export cannot exchange parameters.", strict=False),
    Patch("torch:cond", Around(_cond), _ALIASES, strict=False),
    Patch("torch._higher_order_ops:cond", Around(_cond), _ALIASES, strict=False),
    Patch("torch._higher_order_ops:associative_scan", Around(_associative_scan), _UNROLLED, strict=False),
    Patch(
        "torch._higher_order_ops.associative_scan:associative_scan", Around(_associative_scan), _UNROLLED, strict=False
    ),
    Patch(f"{_TRANSFORMS}:grad_increment_nesting", Around(_nesting), _REASON, strict=False),
    Patch(f"{_TRANSFORMS}:_jvp_with_argnums", _jvp, _REASON, strict=False),
    Patch("torch.func:jacfwd", _jacfwd, _REASON, strict=False),
    Patch(
        "torch._functorch.vmap:_remove_batch_dim",
        Around(_remove_batch_dim),
        "torch.export makes a constant without values of the result of a vmap whose out_dims are not 0.",
        strict=False,
    ),
    Patch(
        "torch.func:hessian",  # the inner Jacobian uses no vmap, because torch cannot capture its gradient
        lambda func, argnums=0: torch.func.jacrev(torch.func.jacrev(func, argnums, chunk_size=1), argnums),
        _REASON,
        strict=False,
    ),
)
"""What strict mode need not replace, because dynamo captures these functions itself."""
