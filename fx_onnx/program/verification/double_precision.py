"""Runs an FX graph in float64, to tell an inaccurate result of PyTorch from a wrong result of the ONNX program."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from fx_onnx.core.torch_private import pytree
from fx_onnx.program.verification.reference_runs import attempt

__all__ = ["value_in_double"]

_WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


class _DoubleInterpreter(Interpreter):
    """Computes every float in float64. A weight is widened where a call reads it, so no second copy of all weights
    is in memory.
    """

    def placeholder(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = super().placeholder(target, args, kwargs)
        # The graph may write to its inputs and buffers, so these are widened once. It does not write to parameters.
        return value if isinstance(value, torch.nn.Parameter) else _widened(value)

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        return result if n.op == "placeholder" else _widened(result)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super().call_function(target, _widened(args), _widened(kwargs))


def value_in_double(module: GraphModule, arguments: Sequence[Any]) -> Any:
    """Returns the results of an FX graph in float64; None if it cannot run so.

    An operator may lack a kernel for float64, or the graph may depend on the dtypes of its values.

    Args:
        module: the graph, which does not change.
        arguments: the values of the placeholders.
    """
    with torch.no_grad():
        found = attempt(lambda: _DoubleInterpreter(_widened_module(module)).run(*arguments))
    return None if isinstance(found, Exception) else found


def _widened_module(module: GraphModule) -> GraphModule:
    """Returns a copy of a graph module, also of its bodies, whose dtype arguments are the wide dtypes."""
    tensors: dict[int, Any] = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    found: GraphModule = copy.deepcopy(module, tensors)
    for each in found.modules():
        if isinstance(each, GraphModule):
            for node in each.graph.nodes:
                if node.op == "call_function":
                    node.args, node.kwargs = _widened_dtypes(node.args), _widened_dtypes(node.kwargs)
            each.recompile()
    return found


def _widened(tree: Any) -> Any:
    return pytree.tree_map_only(
        torch.Tensor, lambda tensor: tensor.to(_WIDE[tensor.dtype]) if tensor.dtype in _WIDE else tensor, tree
    )


def _widened_dtypes(arguments: Any) -> Any:
    return torch.fx.node.map_aggregate(
        arguments, lambda each: _WIDE.get(each, each) if isinstance(each, torch.dtype) else each
    )
