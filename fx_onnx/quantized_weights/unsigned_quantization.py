"""Quantized networks of int8 become networks of uint8, which ONNX Runtime computes exactly on all processors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx.onnx_model.weights import computed, elementwise
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, constant_array, dims, initializer, initializer_tensor
from fx_onnx.passes.rewriter import Pass
from fx_onnx.passes.traversal import all_nodes

__all__ = ["LEGALIZE_SIGNED_QUANTIZATION", "LegalizeSignedQuantization"]


class LegalizeSignedQuantization(Pass):
    """QuantizeLinear and DequantizeLinear of int8 with zero point z → those of uint8 with zero point z + 128.

    Legal because both dtypes have 256 numbers, and the zero point takes the shift back. A Clip between both moves too.
    Applies to weights if activations are quantized, because only then ONNX Runtime computes products in integers:

    - On x64 processors with AVX2 and without VNNI, it adds pairs of products of an int8 weight in 16 bits, where they
      saturate. Results are 20 % off or more. Products of uint8 are right.
    - It moves a Transpose after a DequantizeLinear without a zero point in a wrong way, on all processors.

    Measured with ONNX Runtime 1.31.1 at its default settings.
    """

    name = "legalize_signed_quantization"

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Collects the nodes first, because a constant changes in place if no other node reads it."""
        nodes = [node for node in all_nodes(model.graph) if not node.domain]
        quantizers = [node for node in nodes if node.op_type == "QuantizeLinear"]
        shifted: dict[ir.Node, None] = {}
        if any(initializer_tensor(node.inputs[0]) is None for node in quantizers):
            for node in nodes:
                shifted |= dict.fromkeys(_with_readers(node))
        editor = Editor(model)
        for node in shifted:
            _shift(node, shifted, editor)
        return ir.passes.PassResult(model, modified=bool(shifted))


def _with_readers(node: ir.Node) -> tuple[ir.Node, ...]:
    """Returns a node that begins with int8 numbers, and those that read them; none if one of them cannot be shifted."""
    if node.op_type == "QuantizeLinear" and node.outputs[0].dtype == DataType.INT8:
        readers = tuple(_readers(node.outputs[0]))
        nodes = (node, *readers)
    elif node.op_type == "DequantizeLinear" and initializer_tensor(node.inputs[0]) is not None:
        readers = nodes = (node,)
    else:
        return ()
    is_read = any(reader.op_type == "DequantizeLinear" for reader in readers)
    return nodes if is_read and all(map(_is_shiftable, nodes)) else ()


def _readers(value: Value) -> Iterator[ir.Node]:
    """Yields the nodes that read a value, and those that read its limited form."""
    for node in value.consumers():
        yield node
        if node.op_type == "Clip":
            yield from _readers(node.outputs[0])


def _is_shiftable(node: ir.Node) -> bool:
    """Returns whether the node reads and gives int8 numbers only to such nodes, with known zero points and limits."""
    constants = _constants(node)
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        sizes = dims(node.inputs[1])
        known = sizes is not None and all(isinstance(size, int) for size in sizes)
        if not known or attribute(node, "block_size", 0):
            return False
    elif node.op_type != "Clip":
        return False
    if node.op_type != "DequantizeLinear" and node.outputs[0].is_graph_output():
        return False
    tensors = [initializer_tensor(value) for value in constants if value is not None]
    return all(tensor is not None and tensor.dtype == DataType.INT8 for tensor in tensors)


def _constants(node: ir.Node) -> list[Value | None]:
    """Returns the constants of int8 among the inputs: the limits of a Clip, or a zero point, and a weight before it."""
    if node.op_type == "Clip":
        return list(node.inputs[1:])
    weight = initializer(node.inputs[0]) if node.op_type == "DequantizeLinear" else None
    return [weight, *node.inputs[2:3]]


def _shift(node: ir.Node, shifted: dict[ir.Node, None], editor: Editor) -> None:
    """Shifts the constants of a node, and the dtype of what it returns."""
    inputs = [*node.inputs]
    if node.op_type != "Clip" and len(inputs) == 2:
        sizes: Any = dims(inputs[1])  # integers, as _is_shiftable has found
        inputs.append(editor.constant(np.full(sizes, 128, np.uint8), node))
    for value in _constants(node):
        if value is not None:
            inputs[inputs.index(value)] = _shifted(value, shifted, node, editor)
    attributes = {name: value for name, value in node.attributes.items() if name != "output_dtype"}
    editor.replace(node, node.op_type, inputs, attributes)
    if node.op_type != "DequantizeLinear":
        node.outputs[0].type = ir.TensorType(DataType.UINT8)


def _shifted(value: Value, shifted: dict[ir.Node, None], node: ir.Node, editor: Editor) -> Value:
    """Returns a constant as uint8, under its name if no other node reads it as int8."""
    array, tensor = constant_array(value), initializer_tensor(value)
    if tensor is None or tensor.dtype == DataType.UINT8:  # it changed in place already
        return value
    if array is not None:
        return editor.constant((array.view(np.uint8) ^ 128), node)
    sizes = tensor.shape.numpy()
    along = elementwise([sizes], len(sizes))
    new = computed(_flipped, tensor, dtype=DataType.UINT8, shape=sizes, name=value.name, along=along)
    if not shifted.keys() >= {use.node for use in value.uses()}:
        return editor.initializer(new, value.name or "")
    value.const_value, value.type = new, ir.TensorType(DataType.UINT8)
    return value


def _flipped(numbers: torch.Tensor) -> torch.Tensor:
    """Returns int8 numbers + 128 as uint8."""
    return numbers.view(torch.uint8) ^ 128


LEGALIZE_SIGNED_QUANTIZATION = LegalizeSignedQuantization()
