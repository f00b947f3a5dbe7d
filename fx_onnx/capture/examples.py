"""The example arguments of a capture, and others in which the dynamic dims of size 0 or 1 are larger.

torch reads the sizes of an example, never its values, so a larger example may have arbitrary values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from fx_onnx.capture.dynamic_dims import example_tensors
from fx_onnx.onnx_model.weights import has_storage
from fx_onnx.requests.request import Request
from fx_onnx.torch_internals.torch_private import pytree, storage_id

SmallAxes = Mapping[tuple[int, int], str | None]
"""Axes requested as dynamic whose example size is 0 or 1: (number of the tensor, axis) to the user's dim name."""


@dataclass(frozen=True)
class Example:
    """Arguments to capture from.

    Attributes:
        args: The positional arguments.
        kwargs: The keyword arguments.
        decision: A phrase that says how the example differs from the user's, and why; empty for the user's own
            example.
        specializes: Whether torch makes dims of size 0 and 1 static.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    decision: str = ""
    specializes: bool = False


def separated_example(example: Example, model: torch.nn.Module) -> Example:
    """Returns an example in which no argument shares its storage with another argument or with a weight.

    torch.export creates one fake tensor for a tensor that it gets twice. It captures `x - y` as `y - y` if both are one
    tensor, and ignores an argument that is a weight of the model.
    """
    weights = itertools.chain(model.parameters(), model.buffers())
    seen = {storage_id(weight) for weight in weights if has_storage(weight)}

    def clone_if_shared(tensor: torch.Tensor) -> torch.Tensor:
        if not has_storage(tensor) or not tensor.numel():
            return tensor
        storage = storage_id(tensor)
        if storage in seen:
            return tensor.detach().clone().requires_grad_(tensor.requires_grad)
        seen.add(storage)
        return tensor

    args, kwargs = pytree.tree_map_only(torch.Tensor, clone_if_shared, (example.args, example.kwargs))
    return replace(example, args=args, kwargs=kwargs)


def original_example(request: Request) -> Example:
    """Returns the user's own example."""
    return Example(request.args, request.kwargs)


def small_axes(request: Request) -> SmallAxes:
    """Returns the axes requested as dynamic whose example size is 0 or 1, which torch.export would specialize."""
    return {
        (number, axis): name
        for number, (tensor, requested) in enumerate(zip(example_tensors(request), request.inputs, strict=True))
        for axis, name in requested.axes.items()
        if tensor.shape[axis] in (0, 1)
    }


def specializing_example(request: Request) -> Example:
    """Returns the user's example, whose dims of size 0 and 1 become static."""
    decision = "captured with static dims of size 0 and 1, because torch.export fails with dynamic ones"
    return Example(request.args, request.kwargs, decision, specializes=True)


def enlarged_examples(request: Request, small: SmallAxes) -> Iterator[Example]:
    """Yields examples that may keep the small axes dynamic, the best one first.

    1. Each dim name gets a size of its own, so that no two dims are equal by chance.
    2. All small axes get the same size, because two names may mean the same dim.
    """
    taken = {size for tensor in example_tensors(request) for size in tensor.shape}
    unused = (size for size in itertools.count(5) if size not in taken)
    by_name = dict(zip(dict.fromkeys(small.values()), unused, strict=False))
    larger = "captured from an example in which the dims of size 0 or 1 {}, because the forward fixes these sizes"
    if small:
        yield _enlarged(request, {axis: by_name[name] for axis, name in small.items()}, larger.format("are larger"))
    if len(by_name) > 1:
        yield _enlarged(request, dict.fromkeys(small, next(unused)), larger.format("are larger and equal"))


def _enlarged(request: Request, sizes: Mapping[tuple[int, int], int], decision: str) -> Example:
    """Returns an example with zeros instead of each tensor that has another size at one of the given axes."""
    numbers = itertools.count()

    def enlarge(tensor: torch.Tensor) -> torch.Tensor:
        number = next(numbers)
        shape = [sizes.get((number, axis), size) for axis, size in enumerate(tensor.shape)]
        return tensor if shape == list(tensor.shape) else tensor.new_zeros(shape)

    args, kwargs = pytree.tree_map_only(torch.Tensor, enlarge, (request.args, request.kwargs))
    return Example(args, kwargs, decision)
