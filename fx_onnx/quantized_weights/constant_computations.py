"""Values that are computed from weights alone, such as scales that are products of others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx.onnx_model.dtypes import is_sub_byte, storage_dtype, torch_dtype
from fx_onnx.onnx_model.weights import computed, has_data
from fx_onnx.passes.cleanup.constant_evaluation import OPERATORS, Function
from fx_onnx.passes.matchers import attribute, constant_array, initializer_tensor
from fx_onnx.torch_internals.torch_private import unset_fake_temporarily

__all__ = ["Computation", "computation"]

_BITWISE: dict[str, Function] = {
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
}


@dataclass(frozen=True, repr=False)
class Computation:
    """A value that depends on initializers only: those and the steps, each with the places of its operands."""

    sources: tuple[ir.TensorProtocol, ...]
    steps: tuple[tuple[Function, tuple[int, ...]], ...]

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Computes the value; a result is freed after its last use."""
        values = dict(enumerate(tensors))
        last = {index: step for step, (_, places) in enumerate(self.steps) for index in places}
        for step, (function, places) in enumerate(self.steps):
            values[len(tensors) + step] = function(*(values[index] for index in places))
            for index in {*places}:
                if last[index] == step:
                    del values[index]
        return values[len(tensors) + len(self.steps) - 1]

    def result(self) -> torch.Tensor:
        """Returns the value on the meta device, which has its dtype and shape and no data."""
        with torch.no_grad(), unset_fake_temporarily():
            return self(*(_without_data(tensor) for tensor in self.sources))

    def tensor(self, dtype: DataType) -> ir.TensorProtocol:
        """Returns the value as a weight of this dtype, which is computed when it is read."""
        if not self.steps and self.sources[0].dtype == dtype:
            return self.sources[0]
        kind = torch_dtype(dtype)
        shape = tuple(self.result().shape)
        return computed(lambda *tensors: self(*tensors).to(kind), *self.sources, dtype=dtype, shape=shape)


def _without_data(tensor: ir.TensorProtocol) -> torch.Tensor:
    kind = storage_dtype(tensor.dtype) if is_sub_byte(tensor.dtype) else torch_dtype(tensor.dtype)
    return torch.empty(tensor.shape.numpy(), dtype=kind, device="meta")


def computation(value: Value | None) -> Computation | None:
    """Returns how to compute a value; None if it depends on inputs, or an operator is unknown."""
    tensor = initializer_tensor(value)
    if tensor is not None:
        return Computation((tensor,), ()) if has_data(tensor) else None
    nodes = _constant_nodes(value)
    if nodes is None:
        return None
    leaves = dict.fromkeys(x for node in nodes for x in node.inputs if x is not None and x.producer() is None)
    tensors = [initializer_tensor(leaf) for leaf in leaves]
    places = {leaf: index for index, leaf in enumerate(leaves)}
    steps = []
    for node in nodes:
        function = _function(node)
        if function is None:
            return None
        steps.append((function, tuple(places[x] for x in node.inputs if x is not None)))
        places[node.outputs[0]] = len(places)
    known = tuple(tensor for tensor in tensors if tensor is not None and has_data(tensor))
    return Computation(known, tuple(steps)) if len(known) == len(leaves) else None


def _constant_nodes(value: Value | None) -> list[ir.Node] | None:
    """Returns the nodes that compute a value, in order; None if one reads something else than an initializer."""
    nodes: dict[ir.Node, None] = {}
    waiting = [value.producer() if value is not None else None]
    while waiting:
        node = waiting[-1]
        if node is None or len(node.outputs) != 1 or node.domain:
            return None
        if any(x is not None and x.producer() is None and initializer_tensor(x) is None for x in node.inputs):
            return None
        before = [x.producer() for x in node.inputs if x is not None and x.producer() is not None]
        missing = [producer for producer in before if producer not in nodes]
        if missing:
            waiting += missing
        else:
            nodes[node] = None
            waiting.pop()
    return list(nodes)


def _function(node: ir.Node) -> Function | None:
    """Returns the function of an operator."""
    if node.op_type in _BITWISE:
        return _BITWISE[node.op_type]
    if node.op_type == "BitShift":
        return _shifted if attribute(node, "direction") == "RIGHT" else None
    if node.op_type == "Cast":
        target = DataType(attribute(node, "to"))
        return None if is_sub_byte(target) else lambda x: x.to(torch_dtype(target))
    if node.op_type == "Transpose":
        order = attribute(node, "perm")
        return None if order is None else lambda x: x.permute(order)
    if node.op_type == "DequantizeLinear":
        return _dequantize_linear(node)
    evaluator = OPERATORS.get(node.op_type)
    return evaluator(node, *map(constant_array, node.inputs)) if evaluator is not None else None


def _dequantize_linear(node: ir.Node) -> Function | None:
    axis, block = attribute(node, "axis", 1), attribute(node, "block_size", 0)
    if any(x is not None and x.dtype != DataType.FLOAT for x in (node.inputs[1], node.outputs[0])):
        return None

    def dequantized(data: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None = None) -> torch.Tensor:
        def whole(parameter: torch.Tensor) -> torch.Tensor:
            if block:
                return parameter.repeat_interleave(block, axis).narrow(axis, 0, data.shape[axis])
            return parameter.reshape(sizes) if parameter.dim() else parameter

        sizes = [1] * data.dim()
        sizes[axis] = -1
        numbers = data.float() if zero is None else data.float() - whole(zero.float())
        return numbers * whole(scale)

    return dequantized


def _shifted(value: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    if value.is_meta:
        return value.new_empty(torch.broadcast_shapes(value.shape, places.shape))
    # torch has unsigned integers of 32 and 64 bits, but no shifts of them.
    return torch.from_numpy(np.right_shift(value.numpy(), places.numpy()))
