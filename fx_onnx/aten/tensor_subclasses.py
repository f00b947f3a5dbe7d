"""Weights that are tensor subclasses, as torchao's quantised ones are → the plain tensors inside them.

torch.export captures what such a weight computes from the tensors inside it, and one call for each that takes it out.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch.export.graph_signature import InputKind, InputSpec
from torch.fx import Node

from fx_onnx.aten.functionalize import AtenProgram
from fx_onnx.core.errors import TranslationError
from fx_onnx.core.weights import is_subclass, memory_key, plain

_TAKES_OUT = torch.ops.export.access_subclass_inner_tensor.default


def unwrap_tensor_subclasses(program: AtenProgram) -> AtenProgram:
    """The program with the plain tensors themselves, named ``weight.part``, in the place of those calls; in place.

    Raises:
        TranslationError: an input is such a tensor, or a weight is used as a whole.
    """
    exported = program.exported_program
    placeholders = program.graph.find_nodes(op="placeholder", sort=True)
    specs = zip(placeholders, exported.graph_signature.input_specs, strict=True)
    found = [(node, spec) for node, spec in specs if is_subclass(node.meta.get("val"))]
    opened = _Opened(program, placeholders[-1]) if found else None
    for node, spec in found:
        if opened is not None:
            opened.weight(node, spec)
    return program


class _Opened:
    """The plain tensors of a program's weights, each one node however often it is taken out."""

    def __init__(self, program: AtenProgram, last_placeholder: Node) -> None:
        self._program, self._place = program, last_placeholder
        self._nodes: dict[Hashable, Node] = {}

    def weight(self, placeholder: Node, spec: InputSpec) -> None:
        """Lets what takes tensors out of a weight be these tensors."""
        kind = type(placeholder.meta["val"]).__name__
        if spec.kind == InputKind.USER_INPUT or spec.target is None:
            raise TranslationError(f"The input {placeholder.name} is a {kind}; ONNX's inputs are plain tensors.")
        exported = self._program.exported_program
        state = exported.state_dict if spec.target in exported.state_dict else exported.constants
        self._take_out(placeholder, spec.target, plain({spec.target: state[spec.target]}))
        if placeholder.users:
            first = next(iter(placeholder.users))
            raise TranslationError(f"The weight {spec.target} is a {kind}, which {first.target} takes as a whole.")

    def _take_out(self, node: Node, name: str, parts: dict[str, torch.Tensor]) -> None:
        for user in [user for user in node.users if user.target is _TAKES_OUT]:
            part = f"{name}.{user.args[1]}"
            if part in parts:
                user.replace_all_uses_with(self._node(part, parts[part], user))
            else:  # a subclass inside it
                self._take_out(user, part, parts)
            if not user.users:
                self._program.graph.erase_node(user)

    def _node(self, name: str, tensor: torch.Tensor, like: Node) -> Node:
        key = memory_key(tensor)
        if key not in self._nodes:
            self._program.constants[name] = tensor
            with self._program.graph.inserting_after(self._place):
                self._nodes[key] = self._place = self._program.graph.create_node("get_attr", name)
            self._place.meta = dict(like.meta)
        return self._nodes[key]
