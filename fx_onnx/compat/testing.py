"""``torch.onnx.testing``: the assertion that a program and its module compute the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch

from fx_onnx.compat.module_verification import example_call
from fx_onnx.messages.arguments import shown
from fx_onnx.messages.errors import ArgumentError, no_effect
from fx_onnx.program.onnx_program import ONNXProgram
from fx_onnx.torch_internals.torch_private import pytree
from fx_onnx.verification.tensor_comparison import as_pair

__all__ = ["assert_onnx_program"]


def assert_onnx_program(
    program: ONNXProgram,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    args: tuple[Any, ...] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    strategy: str | None = None,
    backend: Literal["onnxruntime", "reference"] = "onnxruntime",
) -> None:
    """Runs a program and the ExportedProgram that it was made from, and compares their results.

    Args:
        program: the program.
        rtol: the relative tolerance; None is the one of ``torch.testing.assert_close``.
        atol: the absolute tolerance.
        args: the arguments; None are those of the export.
        kwargs: the keyword arguments.
        strategy: has no effect, because there is one strategy of capture.
        backend: what runs the program.

    Raises:
        AssertionError: the results differ.
        ArgumentError: an argument is not valid.
    """
    if strategy is not None:
        no_effect("strategy", "fx_onnx has one strategy of capture.")
    if backend not in ("onnxruntime", "reference"):
        raise ArgumentError(f"backend must be 'onnxruntime' or 'reference', not {shown(backend)}.")
    exported, positional, named = example_call("assert_onnx_program", program, args, kwargs)
    values = (leaf for leaf in pytree.tree_leaves(exported.module()(*positional, **named)) if leaf is not None)
    run = program if backend == "onnxruntime" else program.call_reference
    for value, result in zip(values, run(*positional, **named), strict=True):
        expected, actual = as_pair(value, result)
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
