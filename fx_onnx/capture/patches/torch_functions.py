"""Replacements of functions of torch that it runs in cases in which it cannot capture them.

The number of rows of `x[n - 3:]` is an expression for every n. torch does not know the sign of the bound, and gives the
size a new symbol, which nothing relates to n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as _torch_attention

import fx_onnx.torch_internals.custom_ops  # noqa: F401  defines fx_onnx::lstsq
from fx_onnx.capture.diagnostics import calling_line
from fx_onnx.capture.patches.patching import Around, Patch, replace_attribute
from fx_onnx.extension_points.rooms import find
from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.torch_internals.guard_private import example_size
from fx_onnx.torch_internals.size_private import in_fewest_terms, is_never_negative
from fx_onnx.torch_internals.torch_private import free_unbacked_symbols, pytree, scan, statically_known_true

__all__ = ["PATCHES", "allclose", "assert_", "equal", "is_nonzero", "lstsq", "refuse_gradients_of_weights"]


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
        bound: torch's own function. It returns None if it does not know whether the index is negative; torch 2.11 also
            if it knows that only.
        size: The size of the axis.
        index: The index in the slice; negative from the end.
    """
    multiple = in_fewest_terms(index)
    is_within = statically_known_true(index <= size) or is_never_negative(size - index)
    if is_within and statically_known_true(multiple >= 0):
        return multiple
    position = bound(size, index)
    if position is None and statically_known_true(index >= 0):
        return torch.sym_min(index, size)
    if position is None and statically_known_true(index < 0):
        return torch.sym_max(index + size, 0)
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


@contextmanager
def refuse_gradients_of_weights(model: torch.nn.Module) -> Iterator[None]:
    """Raises a CaptureError within the context if ``backward`` gives a gradient to a weight of the model.

    The gradient would stay in the module and accumulate in the next call, which an ONNX model cannot do.
    """
    backward = torch.autograd.backward

    def replaced(*args: Any, **kwargs: Any) -> None:
        backward(*args, **kwargs)
        name = next((name for name, weight in model.named_parameters() if weight.grad is not None), None)
        if name is not None:
            raise CaptureError(
                f"backward() stores a gradient in the weight {name!r}, which an ONNX model cannot do{calling_line()}; "
                "compute the gradient with torch.autograd.grad.",
                id=MessageId.GRADIENTS,
            )

    with replace_attribute(torch.autograd, "backward", replaced):
        yield


def _by_room(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that calls what the room of gradients makes of a transform of ``torch.func``."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return find("capture", name)(original)(*args, **kwargs)

    return call


def _remove_batch_dim(remove: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Replaces what ends a vmap: the axis of the batch comes first, and is moved by an operator that torch traces."""

    def removed(tensor: torch.Tensor, level: int, batch_size: Any, out_dim: int) -> torch.Tensor:
        first = remove(tensor, level, batch_size, 0)
        return first.movedim(0, out_dim) if out_dim else first

    return removed


_TRANSFORMS = (
    "torch._functorch.eager_transforms:grad_increment_nesting",
    "torch._functorch.eager_transforms:_jvp_with_argnums",
    "torch.func:jacfwd",
    "torch.func:hessian",
)
_WRAPPED = "torch.export loses track of tensors that a transform wraps."
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
    Patch(
        "torch._functorch.vmap:_remove_batch_dim",
        Around(_remove_batch_dim),
        "torch.export makes a constant without values of the result of a vmap whose out_dims are not 0.",
        strict=False,
    ),
    *(
        Patch(target, Around(partial(_by_room, target.rpartition(":")[2])), _WRAPPED, strict=False)
        for target in _TRANSFORMS
    ),
)
"""What strict mode need not replace, because dynamo captures these functions itself."""
