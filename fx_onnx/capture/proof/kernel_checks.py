"""What kernels of torch check of sizes when they run, without a guard: crops, and the shapes of what is written.

Tensors without values do not tell of a source of another shape than the part of a tensor that it replaces.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch

from fx_onnx.capture.proof.size_condition import BRANCH, UNDEFINED, Condition
from fx_onnx.onnx_model.metadata import call_line
from fx_onnx.sizes.symbolic_sizes import expression
from fx_onnx.torch_internals.operators import aten

__all__ = ["kernel_checks"]

Shape = list[sympy.Expr]


def kernel_checks(node: torch.fx.Node) -> Iterator[Condition]:
    """Yields what the kernel of a node checks, and what none does, which is undefined.

    Circular padding takes what it repeats from the result, which has no values there if they are cropped.
    """
    tensor: Any
    given: Any
    line = call_line(node).strip()
    if node.target in _PADS and node.args[2:3] in ((), ("constant",), ("circular",)):
        tensor, given = node.args[:2]
        is_circular = len(node.args) > 2 and node.args[2] == "circular"
        for size, left, right in zip(_shape(tensor)[::-1], given[::2], given[1::2], strict=False):
            pads = _number(left), _number(right)
            least = sympy.Max(*pads, 0) if is_circular else 0
            if not all(pad.is_nonnegative for pad in pads):
                check = sympy.Ge(size + sum(sympy.Min(pad, 0) for pad in pads), least)
                yield Condition(check, True, UNDEFINED if is_circular else BRANCH, line, is_checked=not is_circular)
    elif node.target in _TRANSPOSED:
        arguments: list[Any] = [*node.args, *_DEFAULTS[len(node.args) :]]
        stride, _, given, _, dilation = arguments[3:]
        for pad, *steps in zip(given, stride, itertools.cycle(dilation)):
            yield Condition(sympy.Lt(_number(pad), sympy.Max(*map(_number, steps))), True, BRANCH, line)
    elif (part := _PARTS.get(node.target)) is not None:
        tensor, given, *numbers = node.args
        for size, other in zip(_shape(given), part(_shape(tensor), *numbers), strict=True):
            yield Condition(sympy.Eq(size, other), True, BRANCH, line)


def _shape(tensor: torch.fx.Node) -> Shape:
    return [expression(size) for size in tensor.meta["val"].shape]


def _number(argument: Any) -> sympy.Expr:
    return expression(argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument)


def _row(shape: Shape, axis: int, index: Any) -> Shape:
    return [size for number, size in enumerate(shape) if number != axis % len(shape)]


def _slice(shape: Shape, axis: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Shape:
    size = shape[axis]
    ends = (_number(0 if start is None else start), size if end is None else _number(end))
    first, last = (sympy.Max(n + size, 0) if n.is_negative else sympy.Min(n, size) for n in ends)
    length = sympy.Max(last - first, 0)
    shape[axis] = length if step == 1 else sympy.floor((length - 1) / _number(step)) + 1
    return shape


def _diagonal(shape: Shape, offset: Any = 0, first: int = 0, second: int = 1) -> Shape:
    shift, axes = _number(offset), {first % len(shape), second % len(shape)}
    length = sympy.Min(shape[first] + sympy.Min(shift, 0), shape[second] - sympy.Max(shift, 0))
    return [*(size for axis, size in enumerate(shape) if axis not in axes), sympy.Max(length, 0)]


_PADS = {aten.constant_pad_nd.default, aten.pad.default}
_TRANSPOSED = {aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input}
_DEFAULTS = (None, None, None, [1], [0], [0], 1, [1])
"""Those of a transposed convolution: stride, padding, output padding, groups and dilation come last."""
_PARTS: dict[Any, Callable[..., Shape]] = {
    aten.select_scatter.default: _row,
    aten.slice_scatter.default: _slice,
    aten.diagonal_scatter.default: _diagonal,
}
"""The shape of the part of a tensor that an operator replaces, from the shape of the tensor and the other arguments."""
