"""Names where a value comes from: the module, the operator, its translation, and the user's line."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir
import torch
from torch.fx import Node

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.decompose import find_translation
from fx_onnx.messages.source_lines import function_place, is_internal, shown_path, traced_lines
from fx_onnx.onnx_model import metadata
from fx_onnx.registry.translation_table import TranslationTable

__all__ = ["Origin", "TranslationOrigins", "origin_of"]


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
        found: dict[str, dict[tuple[str, Callable[..., Any]], None]] = {}
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
                        found.setdefault(key, {})[operator_text(node.target), entry.function] = None
        return cls(table, {name: tuple(calls) for name, calls in found.items()})

    def custom_texts(self, node_name: str) -> str:
        """Returns the user's functions that translated a captured node, with their places; empty if there are none."""
        return " and ".join(dict.fromkeys(function_place(function) for _, function in self.custom.get(node_name, ())))


def _bodies(node: Node) -> list[str]:
    """Returns the names of the bodies of a control-flow node."""
    arguments = node.all_input_nodes if node.op == "call_function" else ()
    return [str(each.target) for each in arguments if each.op == "get_attr"]


def _outermost_user(body: str, users: Mapping[str, tuple[str, Node]]) -> Node | None:
    """Returns the node of the main graph whose body it is, or contains it; None for the main graph."""
    node = None
    while body in users:
        body, node = users[body]
    return node


@dataclass(frozen=True)
class Origin:
    """Where a value comes from.

    Attributes:
        node: the name of the FX node.
        module: the path of the module, with the number of the call if it is not the first; empty for the model itself.
        module_class: the name of the module's class; empty if the node is in no module.
        operator: the operator, for example ``aten.gelu``.
        translation: what translated or rewrote it, with the place of a custom function.
        line: the user's line of code; empty if it is unknown.
        place: the file and the line of the user's code; empty if it is unknown.
    """

    node: str
    module: str
    module_class: str
    operator: str
    translation: str
    line: str
    place: str

    @property
    def where(self) -> str:
        """The module and its class, for example ``enc.1 (GELU)``."""
        path, _, again = self.module.partition("@")
        call = f", call {int(again) + 1}" if again.isdigit() else ""
        return f"{path or 'the model'} ({self.module_class}{call})" if self.module_class else path or self.node

    def __str__(self) -> str:
        return f"{self.where} = {self.operator}{self.translation}"

    @property
    def your_line(self) -> str:
        """The clause about the user's line, for example ``; your line: self.enc(x), model.py:40``."""
        return f"; your line: {self.line}, {self.place}" if self.place else ""


def origin_of(
    node: Node, inside: Sequence[Node], origins: TranslationOrigins | None, computed_by: Sequence[ir.Node] = ()
) -> Origin:
    """Returns where the value of a node comes from.

    Args:
        node: an FX node of the captured program.
        inside: the nodes that compute it together with ``node``; their own values are not in the ONNX model.
        origins: the translations; None if they are unknown.
        computed_by: the ONNX nodes. Where a rule of the user made one, it is named instead of the translation.
    """
    calls = [each for each in inside if _computes(each)] or [node]
    custom = [each for each in calls if origins is not None and each.name in origins.custom]
    main = custom[0] if custom else node if node in calls else calls[-1]
    others = list(dict.fromkeys(operator_text(each.target) for each in calls if each is not main))
    more = f", together with {', '.join(others[:4])}{' and others' if len(others) > 4 else ''}" if others else ""
    path, cls = _module(main)
    line, place = _user_line(main.meta.get("stack_trace") or "")
    rules = dict.fromkeys(each.meta[metadata.RULE] for each in computed_by if metadata.RULE in each.meta)
    rewritten = f", rewritten by the rule {' and '.join(map(function_place, rules))}" if rules else ""
    text = (rewritten or _translation(main, origins)) + more
    return Origin(main.name, path, cls, operator_text(main.target), text, line, place)


def _computes(node: Node) -> bool:
    is_call = node.op == "call_function" and isinstance(node.meta.get("val"), (torch.Tensor, list, tuple))
    return is_call and getattr(node.target, "__module__", "") != "_operator"


def operator_text(target: Any) -> str:
    """Returns an operator as text, without the name of its default overload: ``aten.gelu``, ``aten.add.Tensor``."""
    name = str(target) if not callable(target) or hasattr(target, "_schema") else getattr(target, "__name__", "")
    return (name or str(target)).removesuffix(".default")


def _module(node: Node) -> tuple[str, str]:
    properties = metadata.of_fx_node(node)
    paths, classes = (ast.literal_eval(properties[key]) for key in (metadata.NAME_SCOPES, metadata.CLASS_HIERARCHY))
    return (paths[-2], classes[-2].rpartition(".")[2]) if len(paths) > 1 else ("", "")


def _translation(node: Node, origins: TranslationOrigins | None) -> str:
    """Returns the clause about the translation of a node."""
    if origins is None:
        return ""
    custom = origins.custom.get(node.name, ())
    if custom:
        operators = [f" of {operator}" if operator != operator_text(node.target) else "" for operator, _ in custom]
        names = [f"{function_place(each)}{of}" for (_, each), of in zip(custom, operators, strict=True)]
        return f", translated by {' and '.join(names)}"
    entry = find_translation(node, origins.table)
    return ", decomposed" if entry is None else f", translated by {entry.function.__name__} of fx_onnx"


def _user_line(trace: str) -> tuple[str, str]:
    """Returns the code and the ``file:line`` of the innermost frame that is not internal."""
    own = [each for each in traced_lines(trace) if not is_internal(each.path)]
    return (own[-1].code.removeprefix("return "), f"{shown_path(own[-1].path)}:{own[-1].line}") if own else ("", "")
