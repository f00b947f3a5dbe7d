"""Nodes that depend on no input and no weight → constants, computed once by torch itself.

Position indices, causal masks, tables of relative positions: what a forward builds from numbers alone is the same at
every run. Weights (parameters and persistent buffers) are never folded: they stay in the model under their names.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable
from typing import Any

import torch
from torch.export.graph_signature import InputKind, InputSpec
from torch.fx import Node
from torch.fx.node import map_aggregate

from fx_onnx.aten.functionalize import AtenProgram
from fx_onnx.core import metadata
from fx_onnx.core.torch_private import FakeTensor, OpOverload, unset_fake_temporarily

MAXIMUM_BYTES = 64 * 1024
"""A larger result stays computed: a model should not grow by what a few nodes can make."""


def fold_constants(program: AtenProgram) -> AtenProgram:
    """The program with every foldable node that another kind of node uses replaced by a constant, in place."""
    values = _Values(program)
    for node in list(program.graph.nodes):
        if node.op == "call_function" and values.is_constant(node) and any(u not in values for u in node.users):
            values.replace(program, node)
    return program


class _Values:
    """The foldable nodes of a program; the value of one is computed when it is asked for."""

    def __init__(self, program: AtenProgram) -> None:
        self._values: dict[Node, Any] = _given(program)
        self._constants: dict[Hashable, Node] = {}
        self._foldable: set[Node] = set(self._values)
        for node in program.graph.nodes:
            if node.op == "call_function" and _may_fold(node) and self._foldable.issuperset(node.all_input_nodes):
                self._foldable.add(node)

    def __contains__(self, node: Node) -> bool:
        return node in self._foldable

    def is_constant(self, node: Node) -> bool:
        """Whether the node's own result is a tensor that can be a constant."""
        return node in self._foldable and isinstance(node.meta.get("val"), torch.Tensor)

    def __getitem__(self, node: Node) -> Any:
        if node not in self._values:
            args, kwargs = map_aggregate((node.args, node.kwargs), self._argument)
            with torch.no_grad(), unset_fake_temporarily():
                self._values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        return self._values[node]

    def replace(self, program: AtenProgram, node: Node) -> None:
        """Puts a constant with the node's value and name in its place, or the constant that has that value already.

        So what each layer computes anew from the same numbers is one constant.
        """
        value, name = self[node].contiguous(), node.name
        key = _key(value)
        if key in self._constants:
            node.replace_all_uses_with(self._constants[key])
            program.graph.erase_node(node)
            return
        program.constants[name] = value
        with program.graph.inserting_before(node):
            constant = program.graph.create_node("get_attr", name)
        constant.meta = {**node.meta, metadata.FOLDED: True}
        node.replace_all_uses_with(constant)
        program.graph.erase_node(node)
        constant.name = name
        self._values[constant] = value
        self._foldable.add(constant)
        self._constants[key] = constant

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, torch.device) and argument.type == "meta":  # of a model captured without data
            return torch.device("cpu")
        return self[argument] if isinstance(argument, Node) else argument


def _key(value: torch.Tensor) -> Hashable:
    """What makes two constants one: dtype, shape and bytes (0.0 and -0.0 are two)."""
    real = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    dense = real.cpu().clone(memory_format=torch.contiguous_format)  # a single element may have any stride
    return value.dtype, value.shape, dense.flatten().view(torch.uint8).numpy().tobytes()


def _given(program: AtenProgram) -> dict[Node, Any]:
    """The placeholders that hold a tensor of the code, not a weight, and have its data."""
    exported = program.exported_program
    written = {spec.target for spec in program.mutations}
    tensors = exported.constants
    placeholders = program.graph.find_nodes(op="placeholder", sort=True)
    specs = exported.graph_signature.input_specs
    return {
        node: tensors[str(spec.target)]
        for node, spec in zip(placeholders, specs, strict=True)
        if _is_constant(spec) and spec.target not in written and _has_data(tensors.get(str(spec.target)))
    }


def _is_constant(spec: InputSpec) -> bool:
    return spec.kind == InputKind.CONSTANT_TENSOR or (spec.kind == InputKind.BUFFER and not spec.persistent)


def _has_data(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and not isinstance(tensor, FakeTensor) and tensor.device.type != "meta"


def _may_fold(node: Node) -> bool:
    """Whether a call gives the same small tensor whenever its arguments are the same."""
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, OpOverload) or node.target.namespace != "aten":
        return False
    if torch.Tag.nondeterministic_seeded in node.target.tags or node.target._schema.is_mutable:
        return False
    results = node.meta.get("val")
    tensors = results if isinstance(results, (list, tuple)) else (results,)
    return all(isinstance(t, torch.Tensor) and _bytes(t) <= MAXIMUM_BYTES for t in tensors)


def _bytes(tensor: torch.Tensor) -> float:
    """The size of a tensor; infinite where it is symbolic."""
    count = 1
    for size in tensor.shape:
        if not isinstance(size, int):
            return float("inf")
        count *= size
    return count * tensor.element_size()
