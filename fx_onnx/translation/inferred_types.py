"""Types that ONNX's own inference gives to values, from the nodes that compute them and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx
import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.onnx_model.small_constants import MAX_CONSTANT_BYTES
from fx_onnx.onnx_model.weights import has_data
from fx_onnx.translation.known_sizes import known_sizes

InferredType = tuple[ir.DataType, tuple[int | None, ...] | None]
"""A dtype and the sizes. A size is None if it is dynamic or unknown, and the sizes are None if the rank is unknown."""


def nodes_after(graph: ir.Graph, last: ir.Node | None) -> list[ir.Node]:
    """Returns the nodes of a graph that follow ``last``; all nodes if ``last`` is None."""
    nodes: list[ir.Node] = []
    for node in reversed(graph):
        if node is last:
            break
        nodes.append(node)
    return nodes[::-1]


def inferred_types(
    nodes: Sequence[ir.Node],
    results: Iterable[Value],
    functions: Mapping[ir.OperatorIdentifier, ir.Function],
    opsets: Mapping[str, int],
) -> dict[Value, InferredType]:
    """Returns the types of those results that the nodes compute and whose type ONNX can infer.

    Args:
        nodes: the nodes, in order. The other values that they read have the types and the sizes that are recorded.
        results: the values whose types are wanted.
        functions: the model-local functions that the nodes may call.
        opsets: the opset of each domain.
    """
    wanted = {str(value.name): value for value in results if value.producer() in set(nodes)}
    if not wanted:
        return {}
    graph = onnx.GraphProto(name="inference")
    graph.node.extend(ir.serde.serialize_node(node) for node in nodes)
    for value in dict.fromkeys(_read_from_outside(nodes)):
        if _is_small_constant(value):
            graph.initializer.append(ir.serde.serialize_tensor(value.const_value))  # type: ignore[arg-type]
        elif value.dtype is not None:
            sizes = known_sizes(value)
            dims = None if sizes is None else [size if isinstance(size, int) else None for size in sizes]
            graph.input.append(onnx.helper.make_tensor_value_info(str(value.name), int(value.dtype), dims))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    model = onnx.ModelProto(
        graph=graph,
        ir_version=onnx.IR_VERSION,
        opset_import=[onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()],
        functions=[ir.serde.serialize_function(function) for function in functions.values()],
    )
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except onnx.shape_inference.InferenceError:
        return {}  # whether the nodes are valid is a question for the checker
    return {wanted[info.name]: known for info in inferred.graph.output if (known := _tensor_type(info)) is not None}


def _read_from_outside(nodes: Sequence[ir.Node]) -> Iterator[Value]:
    """Yields the values that the nodes and their subgraphs read, and that the nodes do not compute."""
    inside = set(nodes)
    for node in nodes:
        for value in node.inputs:
            if value is not None and value.producer() not in inside:
                yield value
        for attribute in node.attributes.values():
            for graph in _graphs(attribute):
                own = {*graph.inputs, *graph.initializers.values()}
                yield from (v for v in _read_from_outside(list(graph)) if v not in own and v.producer() not in inside)


def _graphs(attribute: ir.Attr) -> Sequence[ir.Graph]:
    if attribute.type == ir.AttributeType.GRAPH:
        return [attribute.as_graph()]
    return attribute.as_graphs() if attribute.type == ir.AttributeType.GRAPHS else ()


def _is_small_constant(value: Value) -> bool:
    """Returns whether inference may need the values, for example those of the shape input of a Reshape."""
    tensor = value.const_value
    return tensor is not None and tensor.nbytes <= MAX_CONSTANT_BYTES and value.is_initializer() and has_data(tensor)


def _tensor_type(info: onnx.ValueInfoProto) -> InferredType | None:
    if not info.type.HasField("tensor_type") or not info.type.tensor_type.elem_type:
        return None
    tensor_type = info.type.tensor_type
    dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor_type.shape.dim]
    return ir.DataType(tensor_type.elem_type), tuple(dims) if tensor_type.HasField("shape") else None
