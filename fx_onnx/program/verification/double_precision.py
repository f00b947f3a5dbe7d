"""Runs an FX graph in float64, to tell an inaccurate result of PyTorch from a wrong result of the ONNX program."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from fx_onnx.core.torch_private import pytree

__all__ = ["errors_in_double", "run_in_double", "widened_module"]

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


def run_in_double(module: GraphModule, arguments: Sequence[Any]) -> Any:
    """Returns the results of an FX graph in float64.

    Args:
        module: the graph, as ``widened_module`` returns it.
        arguments: the values of the placeholders.

    Raises:
        Exception: an operator has no kernel for float64, or the graph depends on the dtypes of its values.
    """
    with torch.no_grad():
        return _DoubleInterpreter(module).run(*arguments)


def widened_module(module: GraphModule) -> GraphModule:
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


def errors_in_double(expected: Any, found: torch.Tensor, exact: Any) -> tuple[float, float]:
    """Returns the error of PyTorch's value and that of the ONNX value, compared with the value in float64.

    The error of floats is the largest difference of elements that are finite on all three sides. The error of the ONNX
    value is infinite if it has another shape, or if an element is finite or NaN or infinite unlike in PyTorch and in
    float64. The error of integers and booleans is the number of elements that differ.
    """
    eager, onnx, exact = (_comparable(each) for each in (expected, found, exact))
    if not eager.shape == onnx.shape == exact.shape:
        return 0.0, math.inf
    if not found.dtype.is_floating_point and not found.dtype.is_complex:
        return float((eager != exact).sum()), float((onnx != exact).sum())
    finite = exact.isfinite() & eager.isfinite() & onnx.isfinite()
    agreed = _same(eager, exact) | (eager.isfinite() & exact.isfinite())
    if bool((agreed & ~_same(onnx, exact) & (~onnx.isfinite() | ~exact.isfinite())).any()):
        return 0.0, math.inf
    return _largest((eager - exact)[finite]), _largest((onnx - exact)[finite])


def _comparable(value: Any) -> torch.Tensor:
    tensor = value.detach().cpu() if isinstance(value, torch.Tensor) else torch.as_tensor(value)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.double() if tensor.dtype.is_floating_point else tensor


def _same(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return (left == right) | (left.isnan() & right.isnan())


def _largest(differences: torch.Tensor) -> float:
    return float(differences.abs().max()) if differences.numel() else 0.0
