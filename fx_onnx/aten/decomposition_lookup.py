"""Lookup of the decomposition of an operator: the package's own first, then PyTorch's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from fx_onnx.core.torch_private import OpOverload, has_composite_kernel, torch_decompositions
from fx_onnx.decompositions import DECOMPOSITIONS


class Decomposition(NamedTuple):
    """A decomposition of an operator.

    Attributes:
        function: computes the operator from simpler ones, with the operator's parameters.
        keeps_composites: whether composite operators (CompositeImplicitAutograd) such as linear stay whole in its
            trace. An operator that is itself composite is decomposed by a trace that keeps none.
    """

    function: Callable[..., Any]
    keeps_composites: bool


@functools.cache
def find_decomposition(target: Any) -> Decomposition | None:
    """Returns the decomposition of ``target``: the package's own or else PyTorch's; None if there is none."""
    name = target._schema.name if isinstance(target, OpOverload) else None
    if (own := DECOMPOSITIONS.get(target) or DECOMPOSITIONS.get(name)) is not None:
        return Decomposition(own, True)
    if not isinstance(target, OpOverload):
        return None
    if has_composite_kernel(target):
        return Decomposition(target, False)
    function = _torch_decompositions().get(target)
    return None if function is None else Decomposition(function, True)


@functools.cache
def _torch_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Returns PyTorch's decompositions, including those of ``torch.onnx.ops``."""
    return {**torch_decompositions(), **torch.onnx.ops.aten_decompositions()}
