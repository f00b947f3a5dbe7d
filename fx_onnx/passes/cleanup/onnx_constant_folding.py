"""Nodes that compute with constants only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from fx_onnx.core import metadata
from fx_onnx.core.dtypes import onnx_dtype, torch_dtype
from fx_onnx.core.torch_private import unset_fake_temporarily
from fx_onnx.core.weights import LazyWeight, Weight, as_torch, computed, elementwise
from fx_onnx.passes.cleanup.constant_evaluation import ELEMENTWISE, OPERATORS, TYPES, Function
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import MAX_CONSTANT_BYTES, attribute, constant_array, dims, initializer_tensor
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FoldConstants"]

_OF_PARAMETERS = "of_parameters"
_MAX_STEPS = 64
"""A computed weight computes its sources anew each time: this many of them at most."""


class FoldConstants(Rewrite):
    """A node whose inputs are all constants → a constant; Shape and Size of known sizes → constants.

    The result has at most 64 KiB. Constants of the exporter are computed at once. What depends on weights or buffers
    becomes a weight that is computed when it is first read: a buffer (a table of positions, a mask) may keep other
    users, a parameter may not, so that no tied parameter is stored twice; then the result may be as large as the
    parameters that go. No Cast makes a parameter or a weight of 8 bits wider: what was made small stays so.
    """

    name = "fold_constants"
    op_types = ("Constant", "Shape", "Size", *OPERATORS)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Folds one node."""
        output = node.outputs[0]
        if editor.function is not None or output.is_graph_output() or len(node.outputs) > 1:
            return False
        if node.op_type == "Constant":
            return _lift(node, editor)
        if node.op_type in ("Shape", "Size"):
            return _sizes(node, editor)
        if any(value is not None and not value.is_initializer() for value in node.inputs):
            return False
        tensors = [initializer_tensor(value) for value in node.inputs]
        if any(tensor is None and value is not None for value, tensor in zip(node.inputs, tensors, strict=True)):
            return False
        known = [tensor for tensor in tensors if tensor is not None]
        if not known or any(tensor.dtype not in TYPES for tensor in known):
            return False
        if all(constant_array(value) is not None for value in node.inputs if value is not None):
            return _now(node, tensors, editor)
        return _later(node, tensors, editor)


def _lift(node: ir.Node, editor: Editor) -> bool:
    """A Constant node → an initializer."""
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


def _sizes(node: ir.Node, editor: Editor) -> bool:
    """Shape and Size, where the sizes they ask for are numbers."""
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


def _now(node: ir.Node, tensors: Sequence[ir.TensorProtocol | None], editor: Editor) -> bool:
    """Computes a constant from the exporter's constants."""
    function = OPERATORS[node.op_type](node, *(None if x is None else x.numpy() for x in tensors))
    if function is None or _size(node, tensors, function) > MAX_CONSTANT_BYTES:
        return False
    with torch.no_grad(), unset_fake_temporarily():
        result = function(*(as_torch(x) for x in tensors if x is not None))
    return editor.replace_with_value(node, editor.constant(Weight(result.clone()).numpy(), node))


def _size(node: ir.Node, tensors: Sequence[ir.TensorProtocol | None], function: Function) -> int:
    """How many bytes the result will have: of small inputs that broadcast it may be any number."""
    sizes, dtype = dims(node.outputs[0]), node.outputs[0].dtype
    known = [size for size in sizes or () if isinstance(size, int)]
    if sizes is None or dtype is None or len(known) < len(sizes):
        return _without_data(function, [tensor for tensor in tensors if tensor is not None]).nbytes
    return int(math.prod(known) * dtype.itemsize)


def _without_data(function: Function, tensors: Sequence[ir.TensorProtocol]) -> torch.Tensor:
    """What the function gives for tensors of these dtypes and shapes, on the meta device."""
    with torch.no_grad(), unset_fake_temporarily():
        return function(*(torch.empty(x.shape.numpy(), dtype=torch_dtype(x.dtype), device="meta") for x in tensors))


def _later(node: ir.Node, tensors: Sequence[ir.TensorProtocol | None], editor: Editor) -> bool:
    """Makes a weight that is computed from weights, without reading any."""
    values = [value for value in node.inputs if value is not None]
    known = [tensor for tensor in tensors if tensor is not None]
    from_parameters = any(map(_is_of_parameters, values))
    if _widens(node, known[0].dtype, from_parameters):
        return False
    if from_parameters and any(_is_of_parameters(value) and len(value.uses()) > 1 for value in values):
        return False
    function = OPERATORS[node.op_type](node, *map(constant_array, node.inputs))
    if function is None or 1 + sum(map(_steps, known)) > _MAX_STEPS:
        return False
    result = _without_data(function, known)
    freed = sum(tensor.nbytes for value, tensor in zip(values, known, strict=True) if len(value.uses()) == 1)
    if result.nbytes > max(MAX_CONSTANT_BYTES, freed) or not _agrees(node.outputs[0], result):
        return False
    shapes = [tensor.shape.numpy() for tensor in known]
    along = elementwise(shapes, result.dim()) if node.op_type in ELEMENTWISE else None
    new = computed(function, *known, dtype=onnx_dtype(result.dtype), shape=tuple(result.shape), along=along)
    name = next(str(value.name) for value in values if constant_array(value) is None)
    made = editor.initializer(new, name if name.endswith("_folded") else f"{name}_folded")
    made.meta[_OF_PARAMETERS] = from_parameters
    return editor.replace_with_value(node, made)


def _widens(node: ir.Node, dtype: ir.DataType, from_parameters: bool) -> bool:
    """Whether it is a Cast that makes more of a parameter's bytes, or of integers of 8 bits."""
    if node.op_type != "Cast" or not (from_parameters or dtype in (ir.DataType.INT8, ir.DataType.UINT8)):
        return False
    return bool(ir.DataType(attribute(node, "to")).bitwidth > dtype.bitwidth)


def _is_of_parameters(value: ir.Value) -> bool:
    """Whether the value is a parameter or computed from one, or a weight of unknown origin: never stored twice."""
    kind = value.metadata_props.get(metadata.INPUT_KIND)
    if kind in ("BUFFER", "CONSTANT_TENSOR") or constant_array(value) is not None:
        return False
    return bool(value.meta.get(_OF_PARAMETERS, True))


def _steps(tensor: ir.TensorProtocol) -> int:
    return 1 + sum(map(_steps, tensor.sources)) if isinstance(tensor, LazyWeight) else 0


def _agrees(value: ir.Value, result: torch.Tensor) -> bool:
    """Whether what was computed has the dtype and shape that the graph says."""
    expected = dims(value)
    return value.dtype in (None, onnx_dtype(result.dtype)) and (expected is None or expected == tuple(result.shape))
