"""Constant folding: nodes that depend on no input and no weight become constants, which torch computes during export.

Such nodes are position indices, causal masks and tables of relative positions, for example. Weights (parameters and
persistent buffers) are never folded, because they stay in the model under their names.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable
from typing import Any

import torch
from torch.export.graph_signature import InputKind, InputSpec
from torch.fx import Node
from torch.fx.node import map_aggregate

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.small_constants import MAX_CONSTANT_BYTES, computing_constants
from fx_onnx.torch_internals.torch_private import FakeTensor, OpOverload


def fold_constants(program: AtenProgram) -> AtenProgram:
    """Replaces foldable tensors by constants where nodes that are not foldable use them; edits the graph in place."""
    foldable = _FoldableNodes(program)
    for node in list(program.graph.nodes):
        if node.op == "call_function" and foldable.is_tensor(node) and any(u not in foldable for u in node.users):
            foldable.replace(program, node)
    return program


class _FoldableNodes:
    """The nodes that depend on constants only. The value of a node is computed on first use."""

    def __init__(self, program: AtenProgram) -> None:
        self._values: dict[Node, Any] = _constant_placeholders(program)
        self._constants: dict[Hashable, Node] = {}
        self._foldable: set[Node] = set(self._values)
        for node in program.graph.nodes:
            if node.op == "call_function" and _may_fold(node) and self._foldable.issuperset(node.all_input_nodes):
                self._foldable.add(node)

    def __contains__(self, node: Node) -> bool:
        return node in self._foldable

    def is_tensor(self, node: Node) -> bool:
        """Returns whether a node is foldable and its result is one tensor."""
        return node in self._foldable and isinstance(node.meta.get("val"), torch.Tensor)

    def __getitem__(self, node: Node) -> Any:
        if node not in self._values:
            args, kwargs = map_aggregate((node.args, node.kwargs), self._argument)
            with computing_constants():
                self._values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        return self._values[node]

    def replace(self, program: AtenProgram, node: Node) -> None:
        """Replaces a node by a constant of its name. Nodes of equal value share one constant."""
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
        if isinstance(argument, torch.device) and argument.type == "meta":
            return torch.device("cpu")  # the model was captured on meta tensors, which have no data
        return self[argument] if isinstance(argument, Node) else argument


def _key(value: torch.Tensor) -> Hashable:
    """Returns a key that equal constants share: dtype, shape and bytes (0.0 and -0.0 differ)."""
    real = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    # contiguous() may keep other strides on axes of size 1
    dense = real.cpu().clone(memory_format=torch.contiguous_format)
    return value.dtype, value.shape, dense.flatten().view(torch.uint8).numpy().tobytes()


def _constant_placeholders(program: AtenProgram) -> dict[Node, Any]:
    """Returns the tensors of the placeholders that are neither inputs nor weights, are not written, and have data."""
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
    """Returns whether a call is deterministic and its results are small tensors of static shape."""
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, OpOverload) or node.target.namespace != "aten":
        return False
    if torch.Tag.nondeterministic_seeded in node.target.tags or node.target._schema.is_mutable:
        return False
    results = node.meta.get("val")
    tensors = results if isinstance(results, (list, tuple)) else (results,)
    return all(isinstance(t, torch.Tensor) and _bytes(t) <= MAX_CONSTANT_BYTES for t in tensors)


def _bytes(tensor: torch.Tensor) -> float:
    """Returns the size of a tensor in bytes; infinity if a size is symbolic."""
    count = 1
    for size in tensor.shape:
        if not isinstance(size, int):
            return float("inf")
        count *= size
    return count * tensor.element_size()
