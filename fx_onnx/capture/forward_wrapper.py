"""Wraps a module's forward while it is captured, for facts that torch.export cannot learn from its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from fx_onnx.capture import pytrees
from fx_onnx.capture.dynamic_shapes import TensorRequest
from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.core.torch_private import pytree


@contextmanager
def wrap_forward(
    model: torch.nn.Module,
    kwargs: dict[str, Any],
    inputs: Sequence[TensorRequest],
    caller_autocast: Callable[[], AbstractContextManager[Any]],
    *,
    float_leaves: Sequence[int] = (),
    register_outputs: bool,
) -> Iterator[None]:
    """Replaces the forward of ``model`` within the context, if at least one of these is needed.

    - The arguments of ``**kwargs`` become parameters with their own names. torch.export checks dynamic shapes against
      ``kwargs`` as one argument but then reads them by keyword, so it accepts no form of them for ``**kwargs``.
    - Dims with the same name become one dim.
    - Floats that were requested as dynamic arrive as 0-d tensors and become symbolic floats.
    - Autocast that is on around the export becomes a region of the forward.
    - The classes of the outputs are registered as pytree containers.

    Args:
        model: The module to capture.
        kwargs: The example keyword arguments.
        inputs: What was requested of each tensor among the arguments.
        caller_autocast: A function that returns a context in which autocast is as in the caller's code.
        float_leaves: The places of dynamic floats among the leaves of ``(args, kwargs)``.
        register_outputs: Whether to register the dataclasses and caches that the forward returns.
    """
    forward, signature = model.forward, inspect.signature(model.forward)
    by_kind = {parameter.kind: parameter for parameter in signature.parameters.values()}
    var_keyword = by_kind.get(inspect.Parameter.VAR_KEYWORD)
    parameters = [parameter for parameter in signature.parameters.values() if parameter is not var_keyword]
    extra = [name for name in kwargs if name not in signature.parameters] if var_keyword else []
    equal_dims = _axes_with_equal_names(inputs)
    if not extra and not equal_dims and not float_leaves and not register_outputs and caller_autocast is nullcontext:
        yield
        return

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        _check_equal(equal_dims, (args, kwargs))
        args, kwargs = _with_symbolic_floats((args, kwargs), float_leaves)
        with caller_autocast():
            result = forward(*args, **kwargs)
        if register_outputs:
            pytrees.register(result)
        return result

    parameters += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in extra]
    wrapped.__signature__ = signature.replace(parameters=parameters) if extra else signature  # type: ignore[attr-defined]
    with replace_attribute(model, "forward", wrapped):
        yield


def _with_symbolic_floats(tree: Any, places: Sequence[int]) -> Any:
    """Replaces the 0-d tensors at the given places among the leaves by symbolic floats."""
    if not places:
        return tree
    leaves, spec = pytree.tree_flatten(tree)
    return pytree.tree_unflatten([leaf.item() if i in places else leaf for i, leaf in enumerate(leaves)], spec)


def _axes_with_equal_names(inputs: Sequence[TensorRequest]) -> list[list[tuple[int, int]]]:
    """Returns the (number of the tensor, axis) pairs of each dim name that has more than one of them."""
    places: dict[str, list[tuple[int, int]]] = {}
    for number, requested in enumerate(inputs):
        for axis, name in requested.axes.items():
            if name is not None:
                places.setdefault(name, []).append((number, axis))
    return [pairs for pairs in places.values() if len(pairs) > 1]


def _check_equal(equal_dims: list[list[tuple[int, int]]], tree: Any) -> None:
    """Tells torch that dims with one name are equal; torch cannot know this if no operator compares them."""
    if not equal_dims:
        return
    tensors = [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
    for (first, axis), *others in equal_dims:
        for number, other in others:
            torch._check(tensors[first].shape[axis] == tensors[number].shape[other])
