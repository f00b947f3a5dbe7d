"""Inference of the shapes of one node's outputs by ONNX's own inference, from the schema and the inputs of the node."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import onnx
import onnx_ir as ir
from onnx import TensorProto, TypeProto

__all__ = ["infer_shapes"]

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
    schema = _schema(node.op_type, opset, node.domain)
    if schema is None or any(attr.type in _GRAPHS or attr.is_ref() for attr in node.attributes.values()):
        return unknown
    types, constants = {}, {}
    for name, value in zip(map(str, range(len(node.inputs))), node.inputs, strict=True):
        if value is None:
            continue
        if value.dtype is None or not isinstance(value.type, ir.TensorType):
            return unknown
        types[name] = _type_proto(int(value.dtype), _sizes(value))
        if (tensor := _small_tensor(value)) is not None:
            constants[name] = tensor
    proto = onnx.NodeProto(
        op_type=node.op_type,
        domain=node.domain,
        input=["" if value is None else str(place) for place, value in enumerate(node.inputs)],
        output=[f"y{place}" for place in range(len(node.outputs))],
        attribute=[ir.serde.serialize_attribute(attr) for attr in node.attributes.values()],
    )
    try:
        found = onnx.shape_inference.infer_node_outputs(
            schema, proto, types, constants, opset_imports=[onnx.helper.make_opsetid(node.domain, opset)]
        )
    except (onnx.shape_inference.InferenceError, RuntimeError):
        return unknown  # the checker refuses the node, with a better message
    return [_shape(found.get(name)) for name in proto.output]


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


def _small_tensor(value: ir.Value) -> TensorProto | None:
    """Returns the elements of a constant of few integers, on which the shapes of results depend."""
    tensor = None if value.is_graph_input() else value.const_value  # a caller may override an input
    if tensor is None or tensor.dtype not in (ir.DataType.INT64, ir.DataType.INT32):
        return None
    return ir.serde.serialize_tensor(tensor) if tensor.size <= _MAX_CONSTANT_ELEMENTS else None


def _shape(found: TypeProto | None) -> ir.Shape | None:
    if found is None or not found.HasField("tensor_type") or not found.tensor_type.HasField("shape"):
        return None
    sizes: Sequence[int | str | None] = [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in found.tensor_type.shape.dim
    ]
    return ir.Shape(sizes)
