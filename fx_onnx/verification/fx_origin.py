"""Names where a value comes from: the module, the operator, its translation, and the user's line."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
import torch
from torch.fx import Node

from fx_onnx.aten.decompose import find_translation
from fx_onnx.messages.source_lines import function_place, is_internal, shown_path, traced_lines
from fx_onnx.onnx_model import metadata
from fx_onnx.translation.translation_origins import TranslationOrigins, operator_text

__all__ = ["Origin", "origin_of"]


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
    calls = [call for call in inside if _computes(call)] or [node]
    custom = [call for call in calls if origins is not None and call.name in origins.custom]
    main = custom[0] if custom else node if node in calls else calls[-1]
    others = list(dict.fromkeys(operator_text(call.target) for call in calls if call is not main))
    more = f", together with {', '.join(others[:4])}{' and others' if len(others) > 4 else ''}" if others else ""
    path, cls = _module(main)
    line, location = _user_line(main.meta.get("stack_trace") or "")
    rules = dict.fromkeys(onnx_node.meta[metadata.RULE] for onnx_node in computed_by if metadata.RULE in onnx_node.meta)
    rewritten = f", rewritten by the rule {' and '.join(map(function_place, rules))}" if rules else ""
    text = (rewritten or _translation(main, origins)) + more
    return Origin(main.name, path, cls, operator_text(main.target), text, line, location)


def _computes(node: Node) -> bool:
    is_call = node.op == "call_function" and isinstance(node.meta.get("val"), (torch.Tensor, list, tuple))
    return is_call and getattr(node.target, "__module__", "") != "_operator"


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
        names = [f"{function_place(function)}{of}" for (_, function), of in zip(custom, operators, strict=True)]
        return f", translated by {' and '.join(names)}"
    entry = find_translation(node, origins.table)
    return ", decomposed" if entry is None else f", translated by {entry.function.__name__} of fx_onnx"


def _user_line(trace: str) -> tuple[str, str]:
    """Returns the code and the ``file:line`` of the innermost frame that is not internal."""
    own = [line for line in traced_lines(trace) if not is_internal(line.path)]
    return (own[-1].code.removeprefix("return "), f"{shown_path(own[-1].path)}:{own[-1].line}") if own else ("", "")
