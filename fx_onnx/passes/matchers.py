"""Matchers: the predicates and look-ups on nodes and values from which passes build their patterns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy.typing as npt
import onnx_ir as ir

from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.small_constants import MAX_CONSTANT_BYTES
from fx_onnx.onnx_model.weights import LazyWeight, Weight

__all__ = [
    "MAX_CONSTANT_BYTES",
    "Kinds",
    "attribute",
    "chain",
    "constant_array",
    "constant_integers",
    "constant_number",
    "dims",
    "has_dtype",
    "initializer",
    "initializer_tensor",
    "is_absorbable",
    "is_read",
    "is_read_by",
    "is_value",
    "kind_of",
    "permutation_of",
    "producer_of",
    "same_shape",
    "single_use",
    "single_use_producer",
]


Kinds = tuple[str | None, ...]
"""The kind of each operand of a node, as ``kind_of`` tells it."""

# ---------------------------------------------------------------- nodes


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """Returns the value of an attribute, or ``default`` if the node does not have it."""
    attr = node.attributes.data.get(name)  # get of UserDict raises and catches a KeyError
    return default if attr is None else attr.value


def producer_of(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """Returns the node that produces the value if it is one of these operators of ONNX's default domain, else None."""
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type in op_types and not node.domain else None


def kind_of(value: ir.Value | None) -> str | None:
    """Returns the type of the operator that produces a value; "" if no node does, None for an absent operand."""
    if value is None:
        return None
    node = value.producer()
    return "" if node is None else node.op_type


def single_use_producer(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """Returns the producer as ``producer_of`` does, but only if its consumer may absorb it (see ``is_absorbable``)."""
    node = producer_of(value, *op_types)
    return node if node is not None and value is not None and is_absorbable(value) else None


def is_absorbable(value: ir.Value) -> bool:
    """Returns whether the one consumer of the value may absorb its producer.

    This needs a single use, because the producer goes away, and a consumer in the same graph: in the body of a Loop the
    absorbed work would be done at every iteration.
    """
    if not single_use(value):
        return False
    producer = value.producer()
    return producer is not None and next(iter(value.uses())).node.graph is producer.graph


def chain(value: ir.Value | None, *op_types: str | tuple[str, ...]) -> tuple[ir.Node, ...] | None:
    """Returns the producers along a path of first inputs, or None if an operator on the path differs.

    ``chain(y, "Reshape", "Expand")`` is ``(reshape, expand)`` where y = Reshape(Expand(x, ...), ...).

    Args:
        value: where the path starts; it is a result of the first node.
        op_types: the operators from the consumer's side to the producer's; a tuple allows any of several.
    """
    nodes: list[ir.Node] = []
    for op_type in op_types:
        node = producer_of(value, *((op_type,) if isinstance(op_type, str) else op_type))
        if node is None:
            return None
        nodes.append(node)
        value = node.inputs[0] if node.inputs else None
    return tuple(nodes)


def permutation_of(node: ir.Node | None) -> list[int] | None:
    """Returns the permutation of a Transpose, also the default one, which reverses the axes.

    None for any other node, and for the default permutation where the rank is unknown.
    """
    if node is None or node.op_type != "Transpose" or node.domain:
        return None
    permutation = attribute(node, "perm")
    if permutation is not None:
        return list(permutation)
    sizes = dims(node.inputs[0])
    return None if sizes is None else list(range(len(sizes)))[::-1]


# ---------------------------------------------------------------- values


def is_value(x: Any) -> TypeGuard[ir.Value]:
    """Returns whether x is a value of a graph. Faster than ``isinstance``, as values inherit from a protocol."""
    return _is_value(x.__class__)


@functools.cache
def _is_value(kind: type) -> bool:
    return issubclass(kind, ir.Value)


def initializer(value: ir.Value | None) -> ir.Value | None:
    """Returns the value if it is an initializer, else None."""
    return value if value is not None and value.is_initializer() else None


def initializer_tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Returns the tensor of an initializer that passes may change; else None.

    They may not change a weight that a caller can override (a graph input), supplies or trains.
    """
    if value is None or not value.is_initializer() or value.is_graph_input() or metadata.KEPT in value.meta:
        return None
    return value.const_value


def constant_array(value: ir.Value | None) -> npt.NDArray[Any] | None:
    """Returns the elements of a small constant that the exporter created; None for weights, which are never read."""
    tensor = initializer_tensor(value)
    if tensor is None:
        node = producer_of(value, "Constant")
        tensor = node.attributes["value"].as_tensor() if node is not None and "value" in node.attributes else None
    if tensor is None or not _is_constant(type(tensor), value is not None and metadata.FOLDED in value.meta):
        return None
    return tensor.numpy() if tensor.nbytes <= MAX_CONSTANT_BYTES else None


@functools.cache  # isinstance takes long for these classes, which inherit from protocols
def _is_constant(kind: type[ir.TensorProtocol], is_folded: bool) -> bool:
    """Returns whether tensors of a class are constants that the exporter created, if passes have folded them or not."""
    return not issubclass(kind, (LazyWeight, ir.ExternalTensor, ir.StringTensor)) and (
        is_folded or not issubclass(kind, Weight)
    )


def constant_number(value: ir.Value | None) -> float | None:
    """Returns the number in a small constant of one element, whatever its rank; None for any other value."""
    array = constant_array(value)
    return float(array.reshape(())) if array is not None and array.size == 1 and array.dtype.kind != "c" else None


def constant_integers(value: ir.Value | None) -> list[int] | None:
    """Returns the elements of a small constant of integers as a flat list; None for any other value."""
    array = constant_array(value)
    return None if array is None or array.dtype.kind not in "iu" else [int(x) for x in array.reshape(-1)]


def dims(value: ir.Value | None) -> tuple[int | str, ...] | None:
    """Returns the shape with a number or a symbolic name for each dim; None if the rank or any dim is unknown."""
    shape = value.shape if value is not None else None
    if shape is None:
        return None
    sizes = tuple([dim if isinstance(dim, int) else dim.value for dim in shape.dims])
    return None if None in sizes else sizes  # type: ignore[return-value]


def same_shape(first: ir.Value | None, second: ir.Value | None) -> bool:
    """Returns whether both shapes are known and equal for all values of the symbolic dims."""
    sizes = dims(first)
    return sizes is not None and sizes == dims(second)


def has_dtype(*dtypes: ir.DataType) -> Callable[[ir.Value], bool]:
    """Returns a condition for ``rule(where=...)``: the value has one of these element types."""
    return lambda value: value.dtype in dtypes


def is_read(value: ir.Value) -> bool:
    """Returns whether a node reads the value, or the graph returns it."""
    return bool(value.uses()) or value.is_graph_output()


def is_read_by(value: ir.Value, *op_types: str) -> bool:
    """Returns whether one of these operators of ONNX's default domain reads the value."""
    return any(use.node.op_type in op_types and not use.node.domain for use in value.uses())


def single_use(value: ir.Value) -> bool:
    """Returns whether exactly one input of one node reads the value and no graph returns it."""
    return len(value.uses()) == 1 and not value.is_graph_output()
