"""Autocast regions → the same operators with the casts that autocast makes.

torch.export keeps a region as a call of its body, whose operators have the arguments of the user's code but autocast's
results. Which operators cast, and to what, is torch's to know, by device. It is read off the dtypes: those casts are
right with which the operator gives its captured dtypes outside autocast.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.fx
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate

from fx_onnx.core.errors import TranslationError
from fx_onnx.core.torch_private import OpOverload, operator_name, pytree

aten = torch.ops.aten

_BY_VALUE = frozenset({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output})
_ENTER, _EXIT = "_enter_autocast", "_exit_autocast"  # of a region in a branch or loop, where it is no call of a body
_ENABLED = 2  # the place of that argument of a region

# Composed of products that autocast casts and sums that it does not, so that their results do not tell what it does.
_RECURRENCES = frozenset(
    {
        aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input,
        aten.lstm_cell.default, aten.gru_cell.default, aten.rnn_tanh_cell.default, aten.rnn_relu_cell.default,
    }
)  # fmt: skip


@dataclass(frozen=True)
class _Setting:
    """What autocast casts: floating tensors on a device, but float64."""

    device: str
    dtype: torch.dtype

    def casts(self, value: Any) -> bool:
        """Whether autocast may cast this argument."""
        return (
            isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and value.dtype != torch.float64
            and value.device.type in (self.device, "meta")
        )


def with_casts(module: GraphModule) -> GraphModule:
    """The module with every cast that its autocast regions make; itself where they make none.

    Raises:
        TranslationError: no casts of an operator's arguments give its captured dtypes.
    """
    graphs = (each.graph for each in module.modules() if isinstance(each, GraphModule))
    if any((_is_region(node) and node.args[_ENABLED]) or _name(node) == _ENTER for g in graphs for node in g.nodes):
        return _Casting(module, None).run()
    return module


def _is_region(node: Node) -> bool:
    return operator_name(node.target) == "wrap_with_autocast"


def _name(node: Node) -> str:
    return str(getattr(node.target, "__name__", ""))


def _setting(device: Any, dtype: Any, enabled: Any) -> _Setting | None:
    return _Setting(device, dtype) if enabled else None


def _named(node: Node) -> Any:
    """What a ``get_attr`` node names."""
    return operator.attrgetter(str(node.target))(node.graph.owning_module)


def _names_body(node: Node) -> bool:
    return node.op == "get_attr" and isinstance(_named(node), GraphModule)


class _Casting:
    """Copies a graph with casts, and the bodies of its regions and control flow likewise.

    Attributes:
        setting: of the autocast region that it is in; None outside, and where autocast is off.
        env: captured node -> new node.
        attributes: what the copy's ``get_attr`` nodes name.
    """

    def __init__(self, old: GraphModule, setting: _Setting | None) -> None:
        self.old, self.setting = old, setting
        self.graph = Graph()
        self.env: dict[Node, Node] = {}
        self.attributes: dict[str, Any] = {}

    def run(self) -> GraphModule:
        """The copy."""
        outer: list[_Setting | None] = []
        for node in self.old.graph.nodes:
            if _name(node) == _ENTER:
                outer.append(self.setting)
                self.setting = _setting(*node.args[:3])
            elif _name(node) == _EXIT:
                self.setting = outer.pop()
            elif _names_body(node):
                continue  # copied where it is called
            elif node.op == "call_function" and self.setting is not None and isinstance(node.target, OpOverload):
                self.env[node] = self._call(node, self.setting)
            else:
                self.env[node] = self._copy(node, {})
            if _is_region(node):  # now it only says how to run
                self.env[node].update_arg(_ENABLED, False)
        return GraphModule(self.attributes, self.graph)

    def _body(self, node: Node, user: Node) -> Node:
        """A body's copy, cast as the region says that calls it, or as what is around the call."""
        setting = _setting(*user.args[:3]) if _is_region(user) else self.setting
        name = f"{node.name}_with_casts"
        self.attributes[name] = _Casting(_named(node), setting).run()
        return self.graph.get_attr(name)

    def _copy(self, node: Node, casts: dict[Node, Node]) -> Node:
        for argument in filter(_names_body, node.all_input_nodes):
            self.env[argument] = self._body(argument, node)
        new = self.graph.node_copy(node, lambda argument: casts.get(argument, self.env[argument]))
        new.name = node.name
        if node.op == "get_attr":
            self.attributes[str(node.target)] = _named(node)
        return new

    def _call(self, node: Node, setting: _Setting) -> Node:
        target = cast(OpOverload, node.target)
        floats = any(setting.casts(argument.meta.get("val")) for argument in node.all_input_nodes)
        if not floats or target._schema.is_mutable or _BY_VALUE.intersection(target.tags):
            return self._copy(node, {})  # autocast leaves these alone
        if node.target in _RECURRENCES:
            raise TranslationError(f"{node.target} in an autocast region casts inside; call it outside of the region.")
        return self._copy(node, self._casts(node, _dtype(node, setting), setting))

    def _casts(self, node: Node, dtype: torch.dtype | None, setting: _Setting) -> dict[Node, Node]:
        """New casts of the arguments."""
        found: dict[Node, Node] = {}
        for argument in node.all_input_nodes:
            value: Any = argument.meta.get("val")
            if dtype is not None and setting.casts(value) and value.dtype != dtype:
                found[argument] = self.graph.call_function(aten.to.dtype, (self.env[argument], dtype))
                found[argument].meta = {**node.meta, "val": value.to(dtype)}
        return found


def _dtype(node: Node, setting: _Setting) -> torch.dtype | None:
    """What the arguments of a call are cast to; None where autocast leaves them alone."""
    wanted = _dtypes(node.meta.get("val"))
    for dtype in (None, setting.dtype, torch.float32):
        try:
            if _dtypes(_result(node, dtype, setting)) == wanted:
                return dtype
        except (RuntimeError, TypeError, ValueError):  # such as of arguments of two dtypes
            continue
    raise TranslationError(f"How autocast casts the arguments of {node.target} cannot be told from its result.")


def _result(node: Node, dtype: torch.dtype | None, setting: _Setting) -> Any:
    def argument(each: Any) -> Any:
        value: Any = each.meta.get("val") if isinstance(each, Node) else each
        return value.to(dtype) if dtype is not None and setting.casts(value) else value

    args, kwargs = map_aggregate((node.args, dict(node.kwargs)), argument)
    with torch.no_grad(), torch.autocast(setting.device, enabled=False):
        return cast(OpOverload, node.target)(*args, **kwargs)


def _dtypes(result: Any) -> list[torch.dtype]:
    return [leaf.dtype for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
