"""Weights that are stored in another form than the module's: packed, transposed, or one part of a weight each."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.onnx_model.dtypes import is_integer, is_sub_byte
from fx_onnx.onnx_model.weights import computed, elementwise, permuted
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import (
    attribute,
    constant_array,
    dims,
    initializer_tensor,
    is_read,
    permutation_of,
    single_use,
)
from fx_onnx.passes.rules import Result, rule

__all__ = [
    "fold_weight_selections",
    "fold_weight_transposes",
    "hoist_quantized_transposes",
    "pack_weights",
    "restore_transpose",
    "transpose_shared_weights",
    "transposed",
]


@rule("Cast(weight.w, to=to)")
def pack_weights(f: NodeBuilder, node: ir.Node, w: Value, to: int) -> Result:
    """Cast(w) from 8 to 4 or 2 bits → a weight of 4 or 2 bits, which is packed when it is saved.

    Legal because saving fails if a value is out of range. torch has no tensors of these dtypes, so the exported module
    holds 8-bit ones. If other nodes read the 8-bit weight, the model holds both.
    """
    data, target = initializer_tensor(w), DataType(to)
    if data is None or not (is_sub_byte(target) and is_integer(target)) or f.editor.function is not None:
        return None
    if constant_array(w) is not None or data.dtype not in (DataType.INT8, DataType.UINT8):
        return f"it casts a constant of the exporter, or a weight of {data.dtype}"
    if node.outputs[0].is_graph_output():
        return "the graph returns its result"
    sizes = data.shape.numpy()
    new = computed(lambda weight: weight, data, dtype=target, shape=sizes, along=elementwise([sizes], len(sizes)))
    return f.editor.initializer(new, f"{w.name}_packed")


@rule("Transpose((DequantizeLinear | Cast)(weight.w, *scales))")
def hoist_quantized_transposes(
    f: NodeBuilder, node: ir.Node, nodes: Sequence[ir.Node], w: Value, scales: Sequence[Value]
) -> Result:
    """Transpose(DequantizeLinear(w)) → DequantizeLinear(Transpose(w)); Transpose(Cast(w)) → Cast(Transpose(w)).

    Legal because both operators are elementwise; the scales move with their axis. Applies where nothing else reads the
    weight w or the dequantized weight. ``fold_weight_transposes`` then stores w transposed, and runtimes find the
    DequantizeLinear right before the product, which is the form that they fuse.
    """
    order, before = permutation_of(node), nodes[1]
    if order is None or initializer_tensor(w) is None or f.editor.function is not None:
        return None
    if not single_use(w):
        return "another node reads the weight"
    inputs, attributes = [w, *scales], dict(before.attributes)
    moved = inputs[:1]
    if scales:
        sizes = dims(scales[0])
        if sizes is None:
            return "the shape of the scales is unknown"
        if len(sizes) == len(order):  # a scale for each block
            moved = inputs
        if sizes:
            attributes["axis"] = ir.AttrInt64("axis", order.index(attribute(before, "axis", 1) % len(order)))
    inputs[: len(moved)] = [value if value is None else f.Transpose(value, perm=order) for value in moved]
    return f.emit(before.op_type, inputs, attributes)[0]


@rule("Transpose(weight.w)")
def fold_weight_transposes(f: NodeBuilder, node: ir.Node, w: Value) -> Result:
    """Transpose(w) → an initializer that is a transposed view of w.

    Legal because no caller can override w. Applies where only Transposes with the same permutation read w, so that no
    tied weight is stored twice.
    """
    data, order = _data(w, f.editor), permutation_of(node)
    if data is None:
        return None
    twins = [use.node for use in w.uses()]
    if order is None or any(permutation_of(twin) != order or twin.outputs[0].is_graph_output() for twin in twins):
        return "something other than Transposes with the same permutation reads the weight"
    value = f.editor.initializer(transposed(data, order), f"{w.name}_transposed")
    for twin in twins:
        if twin is not node:
            f.editor.replace_with_value(twin, value)
    return value


@rule("Gemm(x, weight.w, *bias, transB=1)")
def transpose_shared_weights(f: NodeBuilder, node: ir.Node, x: Value, w: Value, bias: Sequence[Value]) -> Result:
    """Gemm(x, w, transB=1), Gemm(y, w, transB=1) → Gemm(x, wᵀ), Gemm(y, wᵀ), where wᵀ is an initializer.

    Legal because no caller can override w. Applies where only such Gemms read w, and more than one: ONNX Runtime's
    quantize_dynamic transposes w once for each of them, so that its model is wrong. One Gemm keeps the layout of the
    module. Left out where modules become functions, because the calls of one module would have two bodies.
    """
    data, uses = _data(w, f.editor), [(use.node, use.idx) for use in w.uses()]
    if data is None or len(uses) == 1:
        return None
    if any(reader.op_type != "Gemm" or index != 1 or not attribute(reader, "transB", 0) for reader, index in uses):
        return "something other than Gemms with transB reads the weight"
    value = f.editor.initializer(transposed(data, [1, 0]), f"{w.name}_transposed")
    for reader, index in uses:
        del reader.attributes["transB"]
        if reader is not node:
            reader.replace_input_with(index, value)
    return f.Gemm(x, value, *bias, **node.attributes)


def _data(value: Value | None, editor: Editor) -> ir.TensorProtocol | None:
    """Returns the tensor of a weight; None for another value, for an output, and inside of a function."""
    if value is None or value.is_graph_output() or editor.function is not None:
        return None
    return initializer_tensor(value)


def transposed(data: ir.TensorProtocol, order: Sequence[int]) -> ir.TensorProtocol:
    """Returns the transposed view of a weight."""
    sizes = data.shape.numpy()
    shape = [sizes[axis] for axis in order]
    return computed(lambda weight: weight.permute(order), data, dtype=data.dtype, shape=shape, along=permuted(order))


def restore_transpose(
    initializers: MutableMapping[str, Value], name: str, source: ir.TensorProtocol, order: Sequence[int]
) -> ir.Node:
    """Undoes the pass for one initializer: returns Transpose(source), whose result has the name of the initializer.

    Args:
        initializers: the initializers of a graph, by name. ``source`` takes the place of the one that becomes a result.
        name: the initializer.
        source: the weight of which the initializer is a transposed view; it is stored in a file as it is.
        order: the permutation of the axes of ``source``.
    """
    value = initializers.pop(name)
    weight = initializers.get(source.name or "")
    if weight is None:
        weight = Value(name=source.name, shape=ir.Shape(source.shape.numpy()), const_value=source)
        weight.type = ir.TensorType(source.dtype)
        weight.metadata_props.update(value.metadata_props)
        initializers[str(source.name)] = weight
    node = ir.node("Transpose", [weight], {"perm": ir.AttrInt64s("perm", list(order))}, name=f"{name}.Transpose")
    result = node.outputs[0]
    result.name, result.shape, result.type = name, value.shape, value.type
    return node


@rule("Gather(weight.w, _, axis=0)")
def fold_weight_selections(f: NodeBuilder, node: ir.Node, w: Value) -> Result:
    """Gather(w, i), i a constant → an initializer that is a view of w[i].

    Legal because no caller can override w. The pass applies where such Gathers are the only consumers of w. Otherwise
    the model would store parts of w twice. An example is a mixture of experts, which keeps all matrices in one weight.
    """
    data, readers = _data(w, f.editor), [use.node for use in w.uses() if any(map(is_read, use.node.outputs))]
    if data is None or _index(node) is None or constant_array(w) is not None or node not in readers:
        return None  # evaluate_constants reads a small constant of the exporter
    if any(x.inputs[0] is not w or _index(x) is None or x.outputs[0].is_graph_output() for x in readers):
        return "something other than a Gather with a constant index reads the weight"
    sizes, slices = data.shape.numpy(), dict[int, Value]()
    places = [(_index(reader) or 0) % sizes[0] for reader in readers]
    for reader, index in zip(readers, places, strict=True):
        if index not in slices:
            given: dict[str, Any] = {"dtype": data.dtype, "shape": sizes[1:], "reads": {0: (index, index + 1)}}
            new = computed(lambda weight: weight[0], data, along=lambda axis: [axis + 1], **given)
            slices[index] = f.editor.initializer(new, f"{w.name}.{index}")
        if reader is not node:
            f.editor.replace_with_value(reader, slices[index])
    return slices[places[readers.index(node)]]


def _index(node: ir.Node) -> int | None:
    """Returns the index of a Gather along the first axis, if it is one constant number."""
    if node.op_type != "Gather" or node.domain or attribute(node, "axis", 0) != 0:
        return None
    array = constant_array(node.inputs[1])
    return int(array) if array is not None and array.shape == () else None
