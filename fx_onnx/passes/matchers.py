"""Facts about values and nodes: the words in which passes say what they look for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from fx_onnx.core import metadata
from fx_onnx.core.weights import LazyWeight, Weight

__all__ = [
    "MAX_CONSTANT_BYTES",
    "attribute",
    "commuted_inputs",
    "constant",
    "dims",
    "integers",
    "number",
    "producer_of",
    "same_shape",
    "single_use",
    "single_use_producer",
    "weight_of",
]

MAX_CONSTANT_BYTES = 64 * 1024
"""A constant that a pass makes, as opposed to a weight that it changes, is at most this large."""


# ---------------------------------------------------------------- nodes


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """The value of an attribute, or ``default`` where the node has none of this name."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def producer_of(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node whose result the value is, if it is of one of these operators of ONNX's own domain."""
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type in op_types and not node.domain else None


def single_use_producer(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node that makes the value, of one of these operators, if the one that reads it may do its work as well.

    That is, no other input reads the value, no graph returns it, and the reader is in no body, which might be run many
    times for one run of the node.
    """
    node = producer_of(value, *op_types)
    if node is None or value is None or not single_use(value):
        return None
    reader = next(iter(value.uses())).node
    return node if reader.graph is node.graph else None


def commuted_inputs(node: ir.Node) -> Iterator[tuple[ir.Value | None, ir.Value | None]]:
    """The operands of a binary node in both orders, for operators that do not mind."""
    first, second = node.inputs
    yield first, second
    yield second, first


# ---------------------------------------------------------------- values


def weight_of(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer that no caller can override."""
    if value is None or not value.is_initializer() or value.is_graph_input():
        return None
    return value.const_value


def constant(value: ir.Value | None) -> npt.NDArray[Any] | None:
    """The elements of a small constant that the exporter made; None for weights, whose data is never read."""
    tensor = weight_of(value)
    if tensor is None:
        node = producer_of(value, "Constant")
        tensor = node.attributes["value"].as_tensor() if node is not None and "value" in node.attributes else None
    if tensor is None or isinstance(tensor, (LazyWeight, ir.ExternalTensor, ir.StringTensor)):
        return None
    if isinstance(tensor, Weight) and value is not None and metadata.FOLDED not in value.meta:
        return None
    return tensor.numpy() if tensor.nbytes <= MAX_CONSTANT_BYTES else None


def number(value: ir.Value | None) -> float | None:
    """The number that a small constant of one element is, of any rank."""
    found = constant(value)
    return float(found.reshape(())) if found is not None and found.size == 1 and found.dtype.kind != "c" else None


def integers(value: ir.Value | None) -> list[int] | None:
    """A small constant of integers as a list."""
    found = constant(value)
    return None if found is None or found.dtype.kind not in "iu" else [int(x) for x in found.reshape(-1)]


def dims(value: ir.Value | None) -> tuple[int | str, ...] | None:
    """The sizes of a value, each a number or the name of a dim; None if the rank or any size has neither."""
    shape = value.shape if value is not None else None
    if shape is None:
        return None
    found = tuple([dim if isinstance(dim, int) else dim.value for dim in shape.dims])
    return None if None in found else found  # type: ignore[return-value]


def same_shape(first: ir.Value | None, second: ir.Value | None) -> bool:
    """Whether both shapes are known, and equal whatever the dims turn out to be."""
    found = dims(first)
    return found is not None and found == dims(second)


def single_use(value: ir.Value) -> bool:
    """Whether exactly one input of one node reads the value, and no graph returns it."""
    return len(value.uses()) == 1 and not value.is_graph_output()
