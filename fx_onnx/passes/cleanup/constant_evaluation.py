"""Constant folding in the ONNX graph, lazily where the constants are weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from fx_onnx.core import metadata
from fx_onnx.core.dtypes import onnx_dtype, torch_dtype
from fx_onnx.core.small_constants import computing_constants
from fx_onnx.core.torch_private import unset_fake_temporarily
from fx_onnx.core.weights import LazyWeight, Weight, as_torch, computed, elementwise
from fx_onnx.passes.cleanup.evaluators import ELEMENTWISE, OPERATORS, TYPES, Function
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import MAX_CONSTANT_BYTES, attribute, constant_array, dims, initializer_tensor
from fx_onnx.passes.rewriter import Attempt, Rewrite

__all__ = ["EvaluateConstants"]

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
        yield Attempt(self.rewrite, frozenset({""}) if is_computed else None, of_all=True)

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
    found = list(value.shape.dims)
    if node.op_type == "Shape":
        found = found[slice(attribute(node, "start", 0), attribute(node, "end"))]
    sizes = [size for size in found if isinstance(size, int)]
    if len(sizes) < len(found):
        return False
    if node.op_type == "Shape":
        return editor.replace_with_value(node, editor.constant(sizes, node))
    return editor.replace_with_value(node, editor.constant(_scalar(math.prod(sizes)), node))


def _scalar(number: int) -> Any:
    return torch.tensor(number).numpy()


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
