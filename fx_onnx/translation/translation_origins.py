"""Which functions translated the nodes of a program, for the messages about an operator and its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.decompose import find_translation
from fx_onnx.extension_points.translation_table import TranslationTable
from fx_onnx.messages.source_lines import function_place
from fx_onnx.onnx_model import metadata

__all__ = ["TranslationOrigins", "operator_text"]


@dataclass(frozen=True)
class TranslationOrigins:
    """Which functions translated the nodes of a program.

    Attributes:
        table: the translations of the opset.
        custom: the name of a captured node → (operator, function) for the calls that the user's functions translated:
            of the node itself, of its decomposition, and of its bodies.
    """

    table: TranslationTable
    custom: Mapping[str, Sequence[tuple[str, Callable[..., Any]]]] = field(default_factory=dict)

    @classmethod
    def of(cls, program: AtenProgram, table: TranslationTable) -> TranslationOrigins:
        """Returns those of a decomposed program. The nodes are visited only if the table has a custom translation."""
        origins: dict[str, dict[tuple[str, Callable[..., Any]], None]] = {}
        if any(entry.is_custom for entry in table.values()):
            graphs = {"": program.graph, **program.bodies}
            users = {
                body: (name, node) for name, graph in graphs.items() for node in graph.nodes for body in _bodies(node)
            }
            for name, graph in graphs.items():
                owner = _outermost_user(name, users)
                for node in graph.nodes:
                    entry = find_translation(node, table) if node.op == "call_function" else None
                    if entry is not None and entry.is_custom:
                        source = owner or node
                        key = str(source.meta.get(metadata.SOURCE_NAME, source.name))
                        origins.setdefault(key, {})[operator_text(node.target), entry.function] = None
        return cls(table, {name: tuple(calls) for name, calls in origins.items()})

    def custom_texts(self, node_name: str) -> str:
        """Returns the user's functions that translated a captured node, with their places; empty if there are none."""
        return " and ".join(dict.fromkeys(function_place(function) for _, function in self.custom.get(node_name, ())))


def _bodies(node: Node) -> list[str]:
    """Returns the names of the bodies of a control-flow node."""
    arguments = node.all_input_nodes if node.op == "call_function" else ()
    return [str(argument.target) for argument in arguments if argument.op == "get_attr"]


def _outermost_user(body: str, users: Mapping[str, tuple[str, Node]]) -> Node | None:
    """Returns the node of the main graph whose body it is, or contains it; None for the main graph."""
    node = None
    while body in users:
        body, node = users[body]
    return node


def operator_text(target: Any) -> str:
    """Returns an operator as text, without the name of its default overload: ``aten.gelu``, ``aten.add.Tensor``."""
    name = str(target) if not callable(target) or hasattr(target, "_schema") else getattr(target, "__name__", "")
    return (name or str(target)).removesuffix(".default")
