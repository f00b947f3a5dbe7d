"""The replacements that make torch.export faster, and the context in which they act."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from fx_onnx.faster_tracing import (
    fake_results,
    function_modes,
    generated_code,
    node_traces,
    node_values,
    plain_tensors,
    tree_maps,
)
from fx_onnx.faster_tracing.replacement import Replacement, replaced
from fx_onnx.torch_internals.threads import is_current

__all__ = ["REPLACEMENTS", "faster_tracing"]

REPLACEMENTS: tuple[Replacement, ...] = (
    *node_traces.REPLACEMENTS,
    *generated_code.REPLACEMENTS,
    *node_values.REPLACEMENTS,
    *tree_maps.REPLACEMENTS,
    *function_modes.REPLACEMENTS,
    *plain_tensors.REPLACEMENTS,
    *fake_results.REPLACEMENTS,
)


def faster_tracing() -> AbstractContextManager[None]:
    """Returns the context in which torch.export is faster in the current thread."""
    torch.compiler.assume_constant_result(is_current)  # dynamo, which reads the code of branches, cannot trace into it
    return replaced(REPLACEMENTS)
