"""Lowering of autocast regions: explicit casts where autocast would cast.

torch.export captures a region as a call of its body. The body has no casts, but the results of its operators have the
dtypes that autocast gives them. Which operators autocast casts, and to which dtype, is internal to torch and depends on
the device. This stage infers it from dtypes: it chooses the casts with which the operator, without autocast, returns
its captured dtypes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.fx_nodes import AUTOCAST_ENABLED, attribute, is_autocast_region
from fx_onnx.messages.errors import TranslationError
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import OpOverload, pytree, unrecorded

# Autocast does not cast operators whose result depends on the elements of their arguments.
_DATA_DEPENDENT = frozenset({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output})

# The calls around an autocast region in a branch or loop, where the region is not a call of a body.
_ENTER, _EXIT = "_enter_autocast", "_exit_autocast"

_RECURRENCES = ("lstm", "gru", "rnn_tanh", "rnn_relu")

# Autocast casts the products in these operators but not all else, so the captured dtypes do not reveal the casts.
_CAST_INSIDE = frozenset(
    {
        *(f"aten::linalg_pinv{suffix}" for suffix in ("", ".atol_rtol_tensor", ".atol_rtol_float", ".rcond_tensor")),
        *(f"aten::{name}.input" for name in _RECURRENCES),
        *(f"aten::{name}_cell" for name in _RECURRENCES),
        *(f"fx_onnx::{name}" for name in _RECURRENCES),  # the operators for packed sequences
    }
)


@dataclass(frozen=True)
class _Setting:
    """An enabled autocast: it casts floating-point tensors on a device, except float64."""

    device: str
    dtype: torch.dtype

    def casts(self, value: Any) -> bool:
        """Returns whether autocast may cast this argument."""
        return (
            isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and value.dtype != torch.float64
            and value.device.type in (self.device, "meta")
        )


def lower_autocast(program: AtenProgram) -> AtenProgram:
    """Inserts the casts that the program's autocast regions make, and disables autocast in these regions.

    The captured graph does not change. A program without an enabled region is returned unchanged.

    Raises:
        TranslationError: no casts of an operator's arguments give its captured dtypes.
    """
    module = program.graph.owning_module
    if module is None or not any(map(_enables_autocast, _all_nodes(module))):
        return program
    return dataclasses.replace(program, graph=_CastInserter(module, None).run().graph)


def _all_nodes(module: GraphModule) -> Iterator[Node]:
    for submodule in module.modules():
        if isinstance(submodule, GraphModule):
            yield from submodule.graph.nodes


def _enables_autocast(node: Node) -> bool:
    return _target_name(node) == _ENTER or (is_autocast_region(node) and bool(node.args[AUTOCAST_ENABLED]))


def _target_name(node: Node) -> str:
    return str(getattr(node.target, "__name__", ""))


def _setting(device: Any, dtype: Any, enabled: Any) -> _Setting | None:
    return _Setting(device, dtype) if enabled else None


def _is_body(node: Node) -> bool:
    """Returns whether a node is the ``get_attr`` node of the body of a region or of control flow."""
    return node.op == "get_attr" and isinstance(attribute(node), GraphModule)


class _CastInserter:
    """Copies a graph, and the bodies of its regions and control flow, with the casts of autocast.

    Attributes:
        setting: the setting of the enclosing autocast region; None outside a region and where autocast is disabled.
        env: captured node → new node.
        attributes: the attributes that the copy's ``get_attr`` nodes name.
    """

    def __init__(self, old: GraphModule, setting: _Setting | None) -> None:
        self.old, self.setting = old, setting
        self.graph = Graph()
        self.env: dict[Node, Node] = {}
        self.attributes: dict[str, Any] = {}

    def run(self) -> GraphModule:
        """Returns the copy."""
        outer: list[_Setting | None] = []
        for node in self.old.graph.nodes:
            if _target_name(node) == _ENTER:
                outer.append(self.setting)
                self.setting = _setting(*node.args[:3])
            elif _target_name(node) == _EXIT:
                self.setting = outer.pop()
            elif _is_body(node):
                continue  # _copy copies the body at its call
            elif node.op == "call_function" and self.setting is not None and isinstance(node.target, OpOverload):
                self.env[node] = self._call(node, self.setting)
            else:
                self.env[node] = self._copy(node, {})
            if is_autocast_region(node):
                self.env[node].update_arg(AUTOCAST_ENABLED, False)
        return GraphModule(self.attributes, self.graph)

    def _body(self, node: Node, user: Node) -> Node:
        """Returns the ``get_attr`` node of a copied body. The body of a region has the region's own setting."""
        setting = _setting(*user.args[:3]) if is_autocast_region(user) else self.setting
        name = f"{node.name}_with_casts"
        self.attributes[name] = _CastInserter(attribute(node), setting).run()
        return self.graph.get_attr(name)

    def _copy(self, node: Node, casts: dict[Node, Node]) -> Node:
        for argument in filter(_is_body, node.all_input_nodes):
            self.env[argument] = self._body(argument, node)
        new = self.graph.node_copy(node, lambda argument: casts.get(argument, self.env[argument]))
        new.name = node.name
        if node.op == "get_attr":
            self.attributes[str(node.target)] = attribute(node)
        return new

    def _call(self, node: Node, setting: _Setting) -> Node:
        target = cast(OpOverload, node.target)
        floats = any(setting.casts(argument.meta.get("val")) for argument in node.all_input_nodes)
        if not floats or target._schema.is_mutable or _DATA_DEPENDENT.intersection(target.tags):
            return self._copy(node, {})  # autocast does not cast these
        if target.name() in _CAST_INSIDE:
            raise TranslationError(
                f"{node.target} in an autocast region casts inside the operator; call it outside of the region."
            )
        return self._copy(node, self._casts(node, _infer_cast(node, setting), setting))

    def _casts(self, node: Node, dtype: torch.dtype | None, setting: _Setting) -> dict[Node, Node]:
        """Emits casts to ``dtype`` and returns them by argument."""
        casts: dict[Node, Node] = {}
        for argument in node.all_input_nodes:
            value: Any = argument.meta.get("val")
            if dtype is not None and setting.casts(value) and value.dtype != dtype:
                casts[argument] = self.graph.call_function(aten.to.dtype, (self.env[argument], dtype))
                casts[argument].meta = {**node.meta, "val": value.to(dtype)}
        return casts


def _infer_cast(node: Node, setting: _Setting) -> torch.dtype | None:
    """Returns the dtype to which autocast casts the arguments of a call; None if it does not cast them."""
    wanted = _dtypes(node.meta.get("val"))
    values: list[Any] = [argument.meta.get("val") for argument in node.all_input_nodes]
    floats = [value for value in values if setting.casts(value)]
    mixed = len({value.dtype for value in floats if value.dim()}) > 1
    # Fake kernels such as that of linear accept two dtypes, which the real ones refuse. So no cast is the last choice
    # for two dtypes. It is the first one otherwise, because a 0-d tensor keeps its precision beside another tensor.
    runs = False
    for dtype in (setting.dtype, torch.float32, None) if mixed else (None, setting.dtype, torch.float32):
        try:
            dtypes = _dtypes(_result(node, dtype, setting))
        except (RuntimeError, TypeError, ValueError):  # the operator refuses the arguments, of two dtypes for example
            continue
        if dtypes == wanted:
            return dtype
        runs = True
    # An operator that reads its arguments, as tensor_split reads its indices, runs on no fake tensors.
    if not runs and {value.dtype for value in floats} == set(wanted):
        return None
    raise TranslationError(
        f"The casts that autocast makes for {node.target} cannot be inferred from the dtypes of its results. Call it "
        f"outside of the autocast region."
    )


def _result(node: Node, dtype: torch.dtype | None, setting: _Setting) -> Any:
    """Returns the fake result of a call without autocast, with its arguments cast to ``dtype``."""

    def argument(operand: Any) -> Any:
        value: Any = operand.meta.get("val") if isinstance(operand, Node) else operand
        return value.to(dtype) if dtype is not None and setting.casts(value) else value

    args, kwargs = map_aggregate((node.args, dict(node.kwargs)), argument)
    with torch.no_grad(), torch.autocast(setting.device, enabled=False), unrecorded((args, kwargs)):
        return cast(OpOverload, node.target)(*args, **kwargs)


def _dtypes(result: Any) -> list[torch.dtype]:
    return [leaf.dtype for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
