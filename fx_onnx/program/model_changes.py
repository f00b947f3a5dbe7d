"""Changes of a whole model in place: the data of its weights, and the names of its dims."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from fx_onnx.messages.arguments import check_mapping, check_name, did_you_mean, shown
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.weights import as_torch, memory_key, plain, rebind
from fx_onnx.passes.traversal import all_initializers, all_values, graphs_of

__all__ = ["rename_dims", "replace_weights"]


def replace_weights(model: ir.Model, state_dict: Mapping[str, torch.Tensor | np.ndarray[Any, Any]]) -> None:
    """Replaces the data of weights in place; see ``ONNXProgram.apply_weights``.

    Raises:
        ArgumentError: a tensor has another shape or dtype. In this case no weight changes.
    """
    state_dict, used = plain(_as_tensors(state_dict)), set[str]()
    replacements = {
        value: rebind(value.const_value, state_dict, used)
        for value in all_initializers(model.graph)
        if value.const_value is not None
    }
    for value, new in replacements.items():
        value.const_value = new
    placed = {memory_key(state_dict[name]) for name in used}  # tied weights have several names, but one initializer
    for name, tensor in state_dict.items():
        if name not in used and memory_key(tensor) not in placed:
            hint = did_you_mean(name, (str(value.name) for value in replacements)) or "."
            warn(f"The model has no weight named {name!r}{hint}", MessageId.UNKNOWN_NAME)


def _as_tensors(state_dict: Any) -> dict[str, torch.Tensor]:
    """Returns a state_dict with tensors for its NumPy arrays.

    Raises:
        ArgumentError: it is no mapping from names to dense tensors or arrays.
    """
    check_mapping("state_dict", state_dict, "names and tensors", optional=False)
    tensors: dict[str, torch.Tensor] = {}
    for name, given in state_dict.items():
        check_name("The name of a weight", name)
        is_array = isinstance(given, (np.ndarray, np.generic)) and given.dtype != object
        try:
            tensor = as_torch(ir.Tensor(np.asarray(given))) if is_array else given
        except TypeError as error:
            raise ArgumentError(
                f"The new weight {name!r} is an array of {given.dtype}, which torch does not have; convert it to a "
                "dtype of torch.",
                id=MessageId.CALL_OF_PROGRAM,
            ) from error
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
            raise ArgumentError(
                f"The new weight {name!r} must be a dense tensor or an array, not {shown(given)}.",
                id=MessageId.CALL_OF_PROGRAM,
            )
        tensors[name] = tensor
    return tensors


# ---------------------------------------------------------------- the names of dims

_WORD = re.compile(r"[^\W\d][\w.]*")


def rename_dims(model: ir.Model, mapping: Mapping[str, str]) -> set[str]:
    """Renames dims in place, in subgraphs, functions and expressions too, and returns the old names that occur.

    Args:
        model: the model.
        mapping: old name → new name. All dims are renamed at once, so that two dims may swap their names.
    """
    old_names: set[str] = set()

    def renamed(name: str) -> str:
        if name in mapping:
            old_names.add(name)
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
    return old_names
