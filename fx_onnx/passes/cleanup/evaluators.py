"""A table of ONNX operators as torch functions, with which constant folding evaluates nodes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt
import onnx_ir as ir
import torch
from onnx_ir import DataType

from fx_onnx.core.dtypes import torch_dtype
from fx_onnx.passes.matchers import MAX_CONSTANT_BYTES, attribute

__all__ = ["ELEMENTWISE", "OPERATORS", "TYPES", "Function"]

TYPES = frozenset(
    {DataType.BOOL, DataType.UINT8, DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64, DataType.FLOAT16,
     DataType.BFLOAT16, DataType.FLOAT, DataType.DOUBLE}
)  # fmt: skip
"""The dtypes that torch supports for all operators of the table."""

_Tensor = torch.Tensor
_Array = npt.NDArray[Any] | None
# Computes the result of a node from the tensors of its inputs; absent inputs are left out.
Function = Callable[..., _Tensor]
# Takes a node and, for each input, its elements, or None for a weight. Returns how to compute the node, or None if
# torch cannot or the needed elements are unknown.
Evaluator = Callable[..., Function | None]


def _plain(function: Function) -> Evaluator:
    """Returns the evaluator of an operator that depends on neither attributes nor the elements of its inputs."""
    return lambda node, *values: function


def _ints(value: _Array) -> list[int] | None:
    return None if value is None else [int(x) for x in value.reshape(-1)]


def _divided(a: _Tensor, b: _Tensor) -> _Tensor:
    """Divides as ONNX does, which truncates the quotient of integers."""
    return torch.true_divide(a, b) if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


def _div(node: ir.Node, a: _Array, b: _Array) -> Function | None:
    integral = node.outputs[0].dtype is None or not node.outputs[0].dtype.is_floating_point()
    return None if integral and (b is None or not b.all()) else _divided


def _mod(node: ir.Node, a: _Array, b: _Array) -> Function | None:
    if attribute(node, "fmod", 0):
        return torch.fmod
    return torch.remainder if b is not None and b.all() else None


def _cast(node: ir.Node, value: _Array) -> Function | None:
    target = DataType(attribute(node, "to"))
    return functools.partial(_casted, torch_dtype(target)) if target in TYPES else None


def _casted(dtype: torch.dtype, value: _Tensor) -> _Tensor:
    return value.to(dtype)


def _concat(node: ir.Node, *values: _Array) -> Function | None:
    return functools.partial(_concatenated, attribute(node, "axis"))


def _concatenated(axis: int, *values: _Tensor) -> _Tensor:
    return torch.cat(values, axis)


def _unsqueeze(node: ir.Node, value: _Array, axes: _Array) -> Function | None:
    places = _ints(axes)
    return None if places is None else functools.partial(_unsqueezed, places)


def _unsqueezed(axes: list[int], value: _Tensor, _: _Tensor) -> _Tensor:
    rank = value.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        value = value.unsqueeze(axis)
    return value


def _squeeze(node: ir.Node, value: _Array, axes: _Array = None) -> Function | None:
    places = _ints(axes)
    if len(node.inputs) < 2:
        return torch.squeeze
    return None if places is None else functools.partial(_squeezed, tuple(places))


def _squeezed(axes: tuple[int, ...], value: _Tensor, _: _Tensor) -> _Tensor:
    return value.squeeze(axes)


def _reshape(node: ir.Node, value: _Array, shape: _Array) -> Function | None:
    sizes = _ints(shape)
    if sizes is None or (0 in sizes):
        return None
    return functools.partial(_reshaped, sizes)


def _reshaped(sizes: list[int], value: _Tensor, _: _Tensor) -> _Tensor:
    return value.reshape(sizes)


def _expand(node: ir.Node, value: _Array, shape: _Array) -> Function | None:
    sizes = _ints(shape)
    return None if sizes is None else functools.partial(_expanded, sizes)


def _expanded(sizes: list[int], value: _Tensor, _: _Tensor) -> _Tensor:
    return value.expand(torch.broadcast_shapes(value.shape, sizes))


def _transpose(node: ir.Node, value: _Array) -> Function | None:
    """Evaluates a Transpose of a constant. The pass ``fold_weight_transposes`` handles weights, which may be tied."""
    order = attribute(node, "perm")
    return None if value is None or order is None else functools.partial(_permuted, tuple(order))


def _permuted(order: tuple[int, ...], value: _Tensor) -> _Tensor:
    return value.permute(order)


def _slice(node: ir.Node, value: _Array, *bounds: _Array) -> Function | None:
    parts = [_ints(bound) for bound in bounds]
    if any(part is None for part in parts):
        return None
    starts, ends = parts[0] or [], parts[1] or []
    axes = parts[2] if len(parts) > 2 and parts[2] is not None else list(range(len(starts)))
    steps = parts[3] if len(parts) > 3 and parts[3] is not None else [1] * len(starts)
    if min(steps, default=1) < 1:
        return None
    return functools.partial(_sliced, list(zip(starts, ends, axes, steps, strict=True)))


def _sliced(bounds: Sequence[tuple[int, int, int, int]], value: _Tensor, *_: _Tensor) -> _Tensor:
    where = [slice(None)] * value.dim()
    for start, end, axis, step in bounds:
        where[axis] = slice(start, end, step)
    return value[tuple(where)]


def _gather(node: ir.Node, value: _Array, indices: _Array) -> Function | None:
    return functools.partial(_gathered, attribute(node, "axis", 0))


def _gathered(axis: int, value: _Tensor, indices: _Tensor) -> _Tensor:
    axis %= value.dim()
    flat = indices.reshape(-1).long()
    flat = torch.where(flat < 0, flat + value.shape[axis], flat)
    return value.index_select(axis, flat).reshape([*value.shape[:axis], *indices.shape, *value.shape[axis + 1 :]])


def _range(node: ir.Node, start: _Array, limit: _Array, delta: _Array) -> Function | None:
    if start is None or limit is None or delta is None or start.dtype.kind not in "iu":
        return None
    numbers = range(int(start), int(limit), int(delta))
    return functools.partial(_ranged, numbers) if len(numbers) < MAX_CONSTANT_BYTES else None


def _ranged(numbers: range, like: _Tensor, *_: _Tensor) -> _Tensor:
    return torch.tensor(list(numbers), dtype=like.dtype)


def _constant_of_shape(node: ir.Node, shape: _Array) -> Function | None:
    sizes, filled = _ints(shape), attribute(node, "value")
    value = torch.zeros(1) if filled is None else torch.from_numpy(filled.numpy().copy())
    return None if sizes is None else functools.partial(_filled, sizes, value)


def _filled(sizes: list[int], value: _Tensor, _: _Tensor) -> _Tensor:
    return value.reshape(()).expand(sizes)


def _where(condition: _Tensor, then: _Tensor, otherwise: _Tensor) -> _Tensor:
    return torch.where(condition, then, otherwise)


_FUNCTIONS: dict[str, Function] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Neg": torch.neg,
    "Abs": torch.abs,
    "Min": functools.partial(lambda *x: functools.reduce(torch.minimum, x)),
    "Max": functools.partial(lambda *x: functools.reduce(torch.maximum, x)),
    "Floor": torch.floor,
    "Ceil": torch.ceil,
    "Sqrt": torch.sqrt,
    "Reciprocal": torch.reciprocal,
    "Exp": torch.exp,
    "Log": torch.log,
    "Sin": torch.sin,
    "Cos": torch.cos,
    "Tanh": torch.tanh,
    "Not": torch.logical_not,
    "And": torch.logical_and,
    "Or": torch.logical_or,
    "Xor": torch.logical_xor,
    "Equal": torch.eq,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Where": _where,
    "IsNaN": torch.isnan,
}

_COMPUTED: dict[str, Evaluator] = {
    **{name: _plain(function) for name, function in _FUNCTIONS.items()},
    "Div": _div,
    "Mod": _mod,
    "Cast": _cast,
}

ELEMENTWISE = frozenset(_COMPUTED)
"""The elementwise operators: each element of the result depends on the elements at its position only."""

OPERATORS: dict[str, Evaluator] = {
    **_COMPUTED,
    "MatMul": _plain(torch.matmul),
    "Concat": _concat,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Expand": _expand,
    "Transpose": _transpose,
    "Slice": _slice,
    "Gather": _gather,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
}
"""op_type → its evaluator. Where and MatMul are here because masks and rotary tables are computed from buffers."""
