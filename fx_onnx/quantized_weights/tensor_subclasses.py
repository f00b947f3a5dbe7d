"""Unwrapping of weights that are tensor subclasses, such as torchao's quantized weights, to the plain tensors inside.

torch.export captures the computation on the plain tensors inside such a weight. One call for each of these tensors
takes it out of the weight.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch.export.graph_signature import InputKind, InputSpec
from torch.fx import Node

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.messages.errors import TranslationError
from fx_onnx.onnx_model.weights import is_subclass, memory_key, plain

_INNER_TENSOR = torch.ops.export.access_subclass_inner_tensor.default


def unwrap_tensor_subclasses(program: AtenProgram) -> AtenProgram:
    """Replaces the calls that take tensors out of weights by these tensors, named ``weight.part``; edits in place.

    Raises:
        TranslationError: an input is a tensor subclass, or an operator uses a whole weight that is one.
    """
    exported = program.exported_program
    placeholders = program.graph.find_nodes(op="placeholder", sort=True)
    specs = zip(placeholders, exported.graph_signature.input_specs, strict=True)
    subclasses = [(node, spec) for node, spec in specs if is_subclass(node.meta.get("val"))]
    if subclasses:
        unwrapper = _Unwrapper(program, placeholders[-1])
        for node, spec in subclasses:
            unwrapper.unwrap(node, spec)
    return program


class _Unwrapper:
    """Unwraps weights. Each plain tensor gets one node, which all calls that take it out share."""

    def __init__(self, program: AtenProgram, last_placeholder: Node) -> None:
        self._program, self._insertion_point = program, last_placeholder
        self._nodes: dict[Hashable, Node] = {}

    def unwrap(self, placeholder: Node, spec: InputSpec) -> None:
        """Replaces every call that takes a tensor out of one weight."""
        kind = type(placeholder.meta["val"]).__name__
        if spec.kind == InputKind.USER_INPUT or spec.target is None:
            raise TranslationError(
                f"The input {placeholder.name} is a {kind}, but ONNX has plain tensors only; pass plain tensors to the "
                "forward, and create the object there."
            )
        exported = self._program.exported_program
        state = exported.state_dict if spec.target in exported.state_dict else exported.constants
        self._replace_calls(placeholder, spec.target, plain({spec.target: state[spec.target]}))
        if placeholder.users:
            user = next(iter(placeholder.users))
            raise TranslationError(
                f"The weight {spec.target} is a {kind}, which {user.target} reads as a whole, but ONNX has plain "
                "tensors only; store the weight as a plain tensor, or give this call a custom translation."
            )

    def _replace_calls(self, node: Node, name: str, parts: dict[str, torch.Tensor]) -> None:
        for user in [user for user in node.users if user.target is _INNER_TENSOR]:
            part = f"{name}.{user.args[1]}"
            if part in parts:
                user.replace_all_uses_with(self._node(part, parts[part], user))
            else:  # the inner tensor is a tensor subclass too
                self._replace_calls(user, part, parts)
            if not user.users:
                self._program.graph.erase_node(user)

    def _node(self, name: str, tensor: torch.Tensor, call: Node) -> Node:
        """Returns the ``get_attr`` node of a plain tensor, with the metadata of the first call that takes it out."""
        key = memory_key(tensor)
        if key not in self._nodes:
            self._program.constants[name] = tensor
            with self._program.graph.inserting_after(self._insertion_point):
                node = self._program.graph.create_node("get_attr", name)
            node.meta = dict(call.meta)
            self._nodes[key] = self._insertion_point = node
        return self._nodes[key]
