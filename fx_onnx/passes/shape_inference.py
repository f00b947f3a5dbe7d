"""Inference of the shapes of one node's outputs by ONNX's own inference, from the schema and the inputs of the node.

The inference reads the operands of one node and the elements of constants. So these shapes remain unknown:

- sizes of a Reshape, an Expand or a ConstantOfShape to a shape that is computed; their rank is known
- sums, products and quotients of named sizes, because a dim of ONNX is a number or a name
- sizes that depend on data, as those of Compress, or of a Range or a TopK up to a computed number
- results of a Loop, an If or a Scan, and of operators without a schema

A pass that needs such a shape gives it to the new node: ``f.Expand(x, target, sizes=sizes)``.
"""

from __future__ import annotations

import functools
from typing import Any

import onnx
import onnx_ir as ir
from onnx import TensorProto, TypeProto

__all__ = ["fill_shapes", "infer_shapes"]

_Sizes = tuple[int | str | None, ...]

_MAX_CONSTANT_ELEMENTS = 64
"""Constant inputs of at most this many elements are read: shapes, axes, bounds and repeats."""


def infer_shapes(node: ir.Node, opset: int) -> list[ir.Shape | None]:
    """Returns the shape of each output of a node; None for an unknown rank, and for an operator without a schema.

    A size that is not known is None: ONNX has no arithmetic on the names of dims. Source: the inference function of
    each operator's schema, onnx.shape_inference.infer_node_outputs.

    Args:
        node: the node, whose inputs have their element types.
        opset: the version of the node's domain.
    """
    unknown: list[ir.Shape | None] = [None] * len(node.outputs)
    attributes = node.attributes.values()
    if any(attr.type in _GRAPHS or attr.is_ref() for attr in attributes):
        return unknown
    inputs: list[_Input | None] = []
    for value in node.inputs:
        if value is None:
            inputs.append(None)
        elif value.dtype is None or not isinstance(value.type, ir.TensorType):
            return unknown
        else:
            inputs.append((int(value.dtype), _sizes(value), _small_constant(value)))
    given = tuple([(attr.name, attr.type, _hashable(attr.value)) for attr in attributes])
    has_tensor = any(attr.type == ir.AttributeType.TENSOR for attr in attributes)  # which the cache would keep alive
    infer = _infer.__wrapped__ if has_tensor else _infer
    inferred = infer(node.op_type, node.domain, opset, tuple(inputs), given, len(node.outputs))
    return unknown if inferred is None else [None if sizes is None else ir.Shape(sizes) for sizes in inferred]


def fill_shapes(node: ir.Node, opset: int) -> None:
    """Gives the outputs of a node that have no shape the one that ``infer_shapes`` returns."""
    for output, shape in zip(node.outputs, infer_shapes(node, opset), strict=True):
        output.shape = shape if output.shape is None else output.shape


_Input = tuple[int, _Sizes | None, tuple[int, tuple[int, ...], bytes] | None]
"""The element type and the sizes of an input, and of a small constant the type, the shape and the elements."""


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@functools.lru_cache(maxsize=4096)  # the layers of a network have nodes of equal shapes
def _infer(
    op_type: str,
    domain: str,
    opset: int,
    inputs: tuple[_Input | None, ...],
    attributes: tuple[tuple[str, ir.AttributeType, Any], ...],
    outputs: int,
) -> list[_Sizes | None] | None:
    """Returns the sizes of each output; None where the schema is missing or does not allow the node."""
    schema = _schema(op_type, opset, domain)
    if schema is None:
        return None
    present = {str(index): value for index, value in enumerate(inputs) if value is not None}
    proto = onnx.NodeProto(
        op_type=op_type,
        domain=domain,
        input=["" if value is None else str(index) for index, value in enumerate(inputs)],
        output=[f"y{index}" for index in range(outputs)],
        attribute=[ir.serde.serialize_attribute(ir.Attr(*attribute)) for attribute in attributes],
    )
    types = {name: _type_proto(dtype, sizes) for name, (dtype, sizes, _) in present.items()}
    constants = {
        name: TensorProto(data_type=constant[0], dims=constant[1], raw_data=constant[2])
        for name, (_, _, constant) in present.items()
        if constant is not None
    }
    try:
        inferred = onnx.shape_inference.infer_node_outputs(
            schema, proto, types, constants, opset_imports=[onnx.helper.make_opsetid(domain, opset)]
        )
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError):
        return None  # the checker refuses the node, with a better message, or a Cast comes before it
    return [_sizes_of(inferred.get(name)) for name in proto.output]


_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


@functools.cache
def _schema(op_type: str, opset: int, domain: str) -> onnx.defs.OpSchema | None:
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    return schema if schema.has_type_and_shape_inference_function else None


def _sizes(value: ir.Value) -> _Sizes | None:
    if value.shape is None:
        return None
    return tuple([dim if isinstance(dim, int) else dim.value for dim in value.shape.dims])


@functools.lru_cache(maxsize=4096)
def _type_proto(dtype: int, sizes: _Sizes | None) -> TypeProto:
    return onnx.helper.make_tensor_type_proto(dtype, sizes)


def _small_constant(value: ir.Value) -> tuple[int, tuple[int, ...], bytes] | None:
    """Returns a constant of few integers, on which the shapes of results depend, as its type, shape and bytes."""
    tensor = None if value.is_graph_input() else value.const_value  # a caller may override an input
    if tensor is None or tensor.dtype not in (ir.DataType.INT64, ir.DataType.INT32):
        return None
    if tensor.size > _MAX_CONSTANT_ELEMENTS:
        return None
    return int(tensor.dtype), tuple(tensor.shape.numpy()), tensor.tobytes()


def _sizes_of(proto: TypeProto | None) -> _Sizes | None:
    if proto is None or not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
        return None
    return tuple(
        [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in proto.tensor_type.shape.dim]
    )
