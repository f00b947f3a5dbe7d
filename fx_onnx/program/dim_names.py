"""Renames symbolic dims in a whole model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain

import onnx_ir as ir

from fx_onnx.core import metadata
from fx_onnx.passes.traversal import all_values, graphs_of

__all__ = ["rename_dims"]

_WORD = re.compile(r"[^\W\d][\w.]*")


def rename_dims(model: ir.Model, mapping: Mapping[str, str]) -> set[str]:
    """Renames dims in place, in subgraphs, functions and expressions too, and returns the old names that occur.

    Args:
        model: the model.
        mapping: old name → new name. All dims are renamed at once, so that two dims may swap their names.
    """
    found: set[str] = set()

    def renamed(name: str) -> str:
        if name in mapping:
            found.add(name)
            return mapping[name]
        return name

    def renamed_dim(dim: str) -> str:
        whole = renamed(dim)
        return whole if whole != dim else _WORD.sub(lambda word: renamed(word.group()), dim)

    values = chain.from_iterable(map(all_values, graphs_of(model)))
    for value in dict.fromkeys(values):  # once each, because a swap of two names must not happen twice
        if value.shape is None or value.shape.is_static():
            continue
        shape = ir.Shape(value.shape, [value.shape.get_denotation(axis) for axis in range(len(value.shape))])
        for axis, dim in enumerate(value.shape):
            if isinstance(dim, ir.SymbolicDim) and dim.value is not None:
                shape[axis] = renamed_dim(dim.value)
        value.shape = shape  # a new shape, because the old one may be frozen or shared with another value
    if metadata.DATA_DEPENDENT_DIMS in model.meta:
        old = model.meta[metadata.DATA_DEPENDENT_DIMS]
        model.meta[metadata.DATA_DEPENDENT_DIMS] = frozenset(map(renamed_dim, old))
    return found
