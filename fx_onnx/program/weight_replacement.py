"""Replaces the data of a model's weights, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from fx_onnx.core.arguments import check_mapping, check_name, did_you_mean, shown
from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.findings import warn
from fx_onnx.core.messages import MessageId
from fx_onnx.core.weights import as_torch, memory_key, plain, rebind
from fx_onnx.passes.traversal import all_initializers

__all__ = ["replace_weights"]


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
                f"The new weight {name!r} is an array of {given.dtype}.", id=MessageId.CALL_OF_PROGRAM
            ) from error
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
            raise ArgumentError(
                f"The new weight {name!r} must be a dense tensor or an array, not {shown(given)}.",
                id=MessageId.CALL_OF_PROGRAM,
            )
        tensors[name] = tensor
    return tensors
