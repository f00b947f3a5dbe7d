"""Constant folding in the ONNX graph, lazily where the constants are weights."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
from onnx_ir import DataType

from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.dtypes import onnx_dtype, torch_dtype
from fx_onnx.onnx_model.small_constants import computing_constants
from fx_onnx.onnx_model.weights import LazyWeight, Weight, as_torch, computed, elementwise
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import MAX_CONSTANT_BYTES, attribute, constant_array, dims, initializer_tensor
from fx_onnx.passes.rewriter import Attempt, Rewrite
from fx_onnx.torch_internals.torch_private import unset_fake_temporarily

__all__ = ["ELEMENTWISE", "OPERATORS", "TYPES", "EvaluateConstants", "Function"]

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
    return None if integral and (b is None or not b.all() or _overflows(a, b)) else _divided


def _overflows(a: _Array, b: npt.NDArray[Any]) -> bool:
    """Returns whether the lowest integer may be divided by -1, where torch ends the process."""
    return bool((b == -1).any()) and (a is None or bool((a == np.iinfo(a.dtype).min).any()))


def _mod(node: ir.Node, a: _Array, b: _Array) -> Function | None:
    if attribute(node, "fmod", 0):
        return torch.fmod
    return torch.remainder if b is not None and b.all() else None


def _cast(node: ir.Node, value: _Array) -> Function | None:
    target = DataType(attribute(node, "to"))
    return (lambda x: x.to(torch_dtype(target))) if target in TYPES else None


def _concat(node: ir.Node, *values: _Array) -> Function | None:
    return lambda *parts: torch.cat(parts, attribute(node, "axis"))


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
    return None if places is None else lambda x, _: x.squeeze(places)


def _reshape(node: ir.Node, value: _Array, shape: _Array) -> Function | None:
    sizes = _ints(shape)
    return None if sizes is None or 0 in sizes else lambda x, _: x.reshape(sizes)


def _expand(node: ir.Node, value: _Array, shape: _Array) -> Function | None:
    sizes = _ints(shape)
    return None if sizes is None else lambda x, _: x.expand(torch.broadcast_shapes(x.shape, sizes))


def _transpose(node: ir.Node, value: _Array) -> Function | None:
    """Evaluates a Transpose of a constant. The pass ``fold_weight_transposes`` handles weights, which may be tied."""
    order = attribute(node, "perm")
    return None if value is None or order is None else lambda x: x.permute(order)


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
    is_small = len(numbers) < MAX_CONSTANT_BYTES
    return (lambda first, *_: torch.tensor(list(numbers), dtype=first.dtype)) if is_small else None


def _constant_of_shape(node: ir.Node, shape: _Array) -> Function | None:
    sizes, filled = _ints(shape), attribute(node, "value")
    value = torch.zeros(1) if filled is None else torch.from_numpy(filled.numpy().copy())
    return None if sizes is None else lambda _: value.reshape(()).expand(sizes)


_FUNCTIONS: dict[str, Function] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Neg": torch.neg,
    "Abs": torch.abs,
    "Min": lambda *x: functools.reduce(torch.minimum, x),
    "Max": lambda *x: functools.reduce(torch.maximum, x),
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
    "Where": torch.where,
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


# A key in the ``meta`` of a folded value; its entry tells whether the value is computed from a parameter.
_FROM_PARAMETERS = "of_parameters"
# The longest chain of computed weights, because each computes its sources again whenever it is read.
_MAX_STEPS = 64


class EvaluateConstants(Rewrite):
    """f(constants) → constant; Shape(x) and Size(x) → constants where the sizes are numbers.

    Legal because the operators are deterministic and torch computes the same values. Constants that the exporter
    created are folded at once. A result that depends on weights becomes a lazy weight, which is computed when it is
    first read. These limits keep the model small:

    - The result has at most 64 KiB, or the size of the parameters that it replaces.
    - A parameter that other nodes read too is not folded, because it would be stored twice. A buffer, such as a mask or
      a table of positions, is folded even then.
    - A Cast that widens a parameter or an 8-bit weight is not folded.
    """

    name = "evaluate_constants"
    op_types = ("Constant", "Shape", "Size", *OPERATORS)

    def attempts(self, root: tuple[str, str]) -> Iterable[Attempt]:
        """Yields ``rewrite``, for operators that compute from operands where no node produces one of these."""
        is_computed = root[1] not in ("Constant", "Shape", "Size")
        yield Attempt(self.rewrite, {None, ""}.issuperset) if is_computed else Attempt(self.rewrite)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Folds one node."""
        output = node.outputs[0]
        if editor.function is not None or output.is_graph_output() or len(node.outputs) > 1:
            return False
        if node.op_type == "Constant":
            return _lift(node, editor)
        if node.op_type in ("Shape", "Size"):
            return _fold_sizes(node, editor)
        tensors: list[ir.TensorProtocol | None] = []
        for value in node.inputs:
            tensors.append(initializer_tensor(value))
            if tensors[-1] is None and value is not None:
                return False
        known = [tensor for tensor in tensors if tensor is not None]
        if not known or any(tensor.dtype not in TYPES for tensor in known):
            return False
        if all(constant_array(value) is not None for value in node.inputs if value is not None):
            return self._fold_now(node, tensors, editor)
        return self._fold_lazily(node, tensors, editor)

    def _fold_now(self, node: ir.Node, tensors: Sequence[ir.TensorProtocol | None], editor: Editor) -> bool:
        """Computes a constant from the exporter's constants."""
        function = OPERATORS[node.op_type](node, *(None if x is None else x.numpy() for x in tensors))
        if function is None:
            return self.declines(node, "torch does not compute this form of the operator")
        if _result_bytes(node, tensors, function) > MAX_CONSTANT_BYTES:
            return self.declines(node, "the constant would be larger than %s bytes", MAX_CONSTANT_BYTES)
        with computing_constants():
            result = function(*(as_torch(x) for x in tensors if x is not None))
        return editor.replace_with_value(node, editor.constant(Weight(result.clone()).numpy(), node))

    def _fold_lazily(self, node: ir.Node, tensors: Sequence[ir.TensorProtocol | None], editor: Editor) -> bool:
        """Creates a weight that is computed from weights when it is read. No weight is read here."""
        values = [value for value in node.inputs if value is not None]
        known = [tensor for tensor in tensors if tensor is not None]
        from_parameters = any(map(_is_from_parameters, values))
        if _widens(node, known[0].dtype, from_parameters):
            return self.declines(node, "the Cast makes a stored weight larger")
        if from_parameters and any(_is_from_parameters(value) and len(value.uses()) > 1 for value in values):
            return self.declines(node, "another node reads the parameter, which would be stored twice")
        function = OPERATORS[node.op_type](node, *map(constant_array, node.inputs))
        if function is None or 1 + sum(map(_steps, known)) > _MAX_STEPS:
            return self.declines(node, "torch does not compute this form of the operator, or the chain is too long")
        result = _without_data(function, known)
        freed = sum(tensor.nbytes for value, tensor in zip(values, known, strict=True) if len(value.uses()) == 1)
        if result.nbytes > max(MAX_CONSTANT_BYTES, freed):
            return self.declines(node, "the result has %s bytes and replaces %s", result.nbytes, freed)
        if not _agrees(node.outputs[0], result):
            return self.declines(node, "the result has another dtype or shape than the graph declares")
        shapes = [tensor.shape.numpy() for tensor in known]
        along = elementwise(shapes, result.dim()) if node.op_type in ELEMENTWISE else None
        new = computed(function, *known, dtype=onnx_dtype(result.dtype), shape=tuple(result.shape), along=along)
        name = next(str(value.name) for value in values if constant_array(value) is None)
        made = editor.initializer(new, name if name.endswith("_folded") else f"{name}_folded")
        made.meta[_FROM_PARAMETERS] = from_parameters
        return editor.replace_with_value(node, made)


def _lift(node: ir.Node, editor: Editor) -> bool:
    """Turns a Constant node into an initializer."""
    name, attr = next(iter(node.attributes.items()))
    if attr.is_ref() or name.startswith("value_string") or name == "sparse_value":
        return False
    tensor = attr.value if name == "value" else ir.tensor(
        attr.value, dtype=ir.DataType.FLOAT if "float" in name else ir.DataType.INT64
    )  # fmt: skip
    if isinstance(tensor, ir.StringTensor):
        return False
    if tensor.nbytes > MAX_CONSTANT_BYTES:
        return editor.replace_with_value(node, editor.initializer(tensor, node.outputs[0].name or "constant"))
    return editor.replace_with_value(node, editor.constant(tensor.numpy(), node))


def _fold_sizes(node: ir.Node, editor: Editor) -> bool:
    """Folds a Shape or Size whose sizes are all numbers."""
    value = node.inputs[0]
    if value is None or value.shape is None:
        return False
    selected = value.shape.dims[attribute(node, "start") : attribute(node, "end")]  # Size has no such attributes
    sizes = [size for size in selected if isinstance(size, int)]
    if len(sizes) < len(selected):
        return False
    result = np.array(sizes if node.op_type == "Shape" else math.prod(sizes), np.int64)
    return editor.replace_with_value(node, editor.constant(result, node))


def _result_bytes(node: ir.Node, tensors: Sequence[ir.TensorProtocol | None], function: Function) -> int:
    """Returns the bytes of the result, which may be large although the inputs are small, as with Expand."""
    sizes, dtype = dims(node.outputs[0]), node.outputs[0].dtype
    known = [size for size in sizes or () if isinstance(size, int)]
    if sizes is None or dtype is None or len(known) < len(sizes):
        return _without_data(function, [tensor for tensor in tensors if tensor is not None]).nbytes
    return int(math.prod(known) * dtype.itemsize)


def _without_data(function: Function, tensors: Sequence[ir.TensorProtocol]) -> torch.Tensor:
    """Returns the function's result for tensors of these dtypes and shapes on the meta device, which has no data."""
    with torch.no_grad(), unset_fake_temporarily():
        return function(*(torch.empty(x.shape.numpy(), dtype=torch_dtype(x.dtype), device="meta") for x in tensors))


def _widens(node: ir.Node, dtype: ir.DataType, from_parameters: bool) -> bool:
    """Returns whether the node is a Cast that makes a parameter, or an 8-bit weight, larger."""
    if node.op_type != "Cast" or not (from_parameters or dtype in (ir.DataType.INT8, ir.DataType.UINT8)):
        return False
    return bool(ir.DataType(attribute(node, "to")).bitwidth > dtype.bitwidth)


def _is_from_parameters(value: ir.Value) -> bool:
    """Returns whether the value is a parameter, is computed from one, or is a weight of unknown origin."""
    kind = value.metadata_props.get(metadata.INPUT_KIND)
    if kind in ("BUFFER", "CONSTANT_TENSOR") or constant_array(value) is not None:
        return False
    return bool(value.meta.get(_FROM_PARAMETERS, True))


def _steps(tensor: ir.TensorProtocol) -> int:
    """Returns how many computed weights a weight depends on, itself included."""
    return 1 + sum(map(_steps, tensor.sources)) if isinstance(tensor, LazyWeight) else 0


def _agrees(value: ir.Value, result: torch.Tensor) -> bool:
    """Returns whether the result has the dtype and the shape that the graph declares for the value."""
    expected = dims(value)
    return value.dtype in (None, onnx_dtype(result.dtype)) and (expected is None or expected == tuple(result.shape))
