"""Decides from the facts of a capture whether another capture can restrict dynamic dims less.

A capture of an example whose dims of size 0 or 1 are larger may be wrong for the user's example. Another example then
helps only if the forward does not depend on the size itself.

Where a part of the example has size 0 or 1, such as `x[2:]` of 3 rows, torch specializes that part: its guard is an
equation with 0 or 1. A second capture takes as long as the first. It can only differ where such an equation is false
for the sizes of the larger example, so the equations are evaluated first. Models with chunks are an example: 8 tokens
and 32 tokens are one chunk of 256.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sympy

from fx_onnx.capture.captured import Captured
from fx_onnx.capture.dynamic_dims import CapturedInput, example_tensors, source_of_size
from fx_onnx.capture.enlarged_examples import ENLARGING_FACTOR, SmallAxes
from fx_onnx.capture.request import Request
from fx_onnx.core.guard_private import symbols_of_sources
from fx_onnx.core.trial_sizes import is_false

__all__ = ["fixes_small_axes", "larger_example_frees_parts"]


def fixes_small_axes(captured: Captured, small: SmallAxes) -> bool:
    """Returns whether the forward fixes an axis to its size, or takes another branch for size 0 or 1 of the example.

    It then does the same in a capture from any other example in which these axes are dynamic.

    Args:
        captured: A capture from an example in which the small axes are larger.
        small: The axes of the user's example that have size 0 or 1.
    """
    inputs = captured.facts.inputs
    fixed = any(isinstance(inputs[number].dim(axis), int) for number, axis in small)
    return fixed or captured.facts.branch_excludes_example()


def larger_example_frees_parts(request: Request, inputs: list[CapturedInput]) -> bool:
    """Returns whether a part of size 0 or 1 has, or may have, another size where all dynamic dims are enlarged.

    Args:
        request: What was captured.
        inputs: The tensors among the inputs of the captured program.
    """
    shape_env: Any = next((each.shape_env for each in inputs if each.shape_env is not None), None)
    sizes = dict(_enlarged_sizes(request, inputs))
    conditions = (guard.expr for guard in getattr(shape_env, "guards", ()))
    return any(_may_be_false(shape_env, each, sizes) for each in conditions if _is_part_of_size_0_or_1(each))


def _is_part_of_size_0_or_1(condition: Any) -> bool:
    """Returns whether a condition is an equation of 0 or 1 with an expression that is not a dim of an input itself."""
    return isinstance(condition, sympy.Eq) and condition.args[1] in (0, 1) and not condition.args[0].is_Symbol


def _enlarged_sizes(request: Request, inputs: list[CapturedInput]) -> Iterator[tuple[sympy.Symbol, sympy.Integer]]:
    """Yields the symbols of the inputs with their sizes in the enlarged example.

    torch may have replaced the symbol of a dim by another one. Guards contain both.
    """
    for each, tensor in zip(inputs, example_tensors(request), strict=True):
        for axis, size in enumerate(tensor.shape):
            enlarged = sympy.Integer(max(size, 1) * ENLARGING_FACTOR if axis in each.request.axes else size)
            own = symbols_of_sources(each.shape_env).get(source_of_size(each, axis))
            for symbol in (own, each.dim(axis)):
                if isinstance(symbol, sympy.Symbol):
                    yield symbol, enlarged


def _may_be_false(shape_env: Any, condition: Any, sizes: Mapping[Any, Any]) -> bool:
    """Returns whether a condition is false for these sizes, or depends on more than sizes of the inputs."""
    if not sizes.keys() >= condition.free_symbols:
        condition = shape_env.replace(condition)
    return not sizes.keys() >= condition.free_symbols or is_false(condition, sizes)
