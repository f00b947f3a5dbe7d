"""Runs a captured graph on sizes that the example does not have, as the program computes it there."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch

from fx_onnx.capture.patches.data_conditions import current_path
from fx_onnx.sizes.symbolic_sizes import expression, same_size
from fx_onnx.torch_internals.guard_private import as_made
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import OpOverload, storage_id, storage_ids
from fx_onnx.torch_internals.trace_private import left_transforms_undone

__all__ = ["GraphInterpreter", "squeezed_axes"]

_SQUEEZES = (aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)


def squeezed_axes(node: torch.fx.Node) -> Sequence[int]:
    """Returns the axes that a node removes where their size is 1; none for a node of another operator."""
    if node.op != "call_function" or node.target not in _SQUEEZES:
        return ()
    given: Any = node.args
    axes = given[1] if len(given) > 1 else range(given[0].meta["val"].ndim)
    return [axes] if isinstance(axes, int) else axes


class GraphInterpreter(torch.fx.Interpreter):
    """Runs a captured graph as it is: its lists keep their lengths, and its tensors their ranks and static sizes.

    In eager mode, ``split`` returns more tensors for a larger size, and ``squeeze`` removes an axis of size 1. An empty
    tensor has no axis that another size could remove.
    """

    def __init__(
        self,
        module: torch.fx.GraphModule,
        is_empty: bool,
        others: list[torch.fx.Node] | None = None,
        copies: Mapping[torch.fx.Node, bool] | None = None,
    ) -> None:
        """Takes the graph, whether an input is empty, and what receives the nodes with another shape.

        With ``others``, the graph runs as in eager mode, without its assertions. ``copies`` tells which results are
        views or copies; see ``written_copies``. ``sizes`` receives the size of each symbol that is a dim of an input,
        or depends on data.
        """
        super().__init__(module)
        self._is_empty, self._others, self._copies = is_empty, others, copies or {}
        self.sizes: dict[Any, Any] = {}

    @left_transforms_undone()
    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the graph."""
        return super().run(*args, **kwargs)

    def run_node(self, n: torch.fx.Node) -> Any:
        """Runs a node; an item of a list that nothing uses may not exist."""
        if n.target is operator.getitem and not n.users:
            return None
        schema = getattr(n.target, "_schema", None)  # None for a function that is no operator
        is_assertion = n.op == "call_function" and schema is not None and not schema.returns
        if is_assertion and self._leaves_out(n.target):
            return None
        captured: Any = n.meta.get("val")
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        result = getattr(self, n.op)(n.target, args, kwargs)
        if n in self._copies:
            result = self._kept(n, result)
        if self._others is None and isinstance(result, torch.fx.GraphModule):  # the body of a region, such as no_grad
            return GraphInterpreter(result, self._is_empty, copies=self._copies).run
        if n.op == "placeholder" and isinstance(captured, torch.Tensor):
            self.sizes.update(zip(map(expression, captured.shape), result.shape, strict=True))
        elif n.target is aten.split.Tensor and len(captured) != len(result):
            return self._pieces(result, captured)
        elif self._others is not None:
            self._define(result, captured)
            if not self._has_shape(result, captured):
                self._others.append(n)
        elif (axes := squeezed_axes(n)) and captured.ndim > result.ndim:
            source: Any = n.args[0]
            shape = source.meta["val"].shape
            return aten.squeeze.dims(self.env[source], [axis for axis in axes if expression(shape[axis]) == 1])
        elif not (self._is_empty or (_fits(result, captured) and self._keeps_shape(n, result))):
            raise ValueError(f"{n.name} has another structure than in the captured graph")
        return result

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Calls a function; ONNX divides a number by 0, where Python raises an exception."""
        if target is operator.truediv and isinstance(args[1], (int, float)) and not args[1]:
            return math.copysign(math.inf, args[0]) if args[0] else math.nan
        return super().call_function(target, args, kwargs)

    def _kept(self, node: torch.fx.Node, result: torch.Tensor) -> torch.Tensor:
        """Returns a result that is a view, or a copy, as in the captured graph; a later write tells them apart."""
        is_view = storage_id(result) in storage_ids([self.env[argument] for argument in node.all_input_nodes])
        if is_view and not self._copies[node]:
            memory_format: Any = node.kwargs.get("memory_format", torch.contiguous_format)
            return result.clone(memory_format=memory_format)
        if is_view != self._copies[node] and 0 not in result.shape:
            raise ValueError(f"{node.name} is a view in the captured graph, and a copy here")
        return result

    def _keeps_shape(self, node: torch.fx.Node, result: Any) -> bool:
        """Returns whether a view keeps the shape of its tensor if it does in the captured graph.

        Such a view, as a slice of all rows, has no ONNX operator.
        """
        if not isinstance(node.target, OpOverload) or not node.target.is_view or not isinstance(result, torch.Tensor):
            return True
        source: Any = node.args[0]
        if result.shape == self.env[source].shape:
            return True
        before, after = source.meta["val"].shape, node.meta["val"].shape
        return len(before) != len(after) or not all(map(same_size, before, after))

    def _leaves_out(self, assertion: Any) -> bool:
        """Returns whether an assertion is left out. On one path of a model, its conditions tell more, which stay."""
        is_eager = self._others is not None or current_path() is not None
        return is_eager and assertion.namespace != "fx_onnx"

    def _define(self, result: Any, captured: Any) -> None:
        """Defines the sizes that a node makes from data."""
        for value, known in zip(*map(_tensors_and_numbers, (result, captured)), strict=False):
            pairs = zip(known.shape, value.shape, strict=False) if isinstance(known, torch.Tensor) else [(known, value)]
            for symbolic, size in pairs:
                if isinstance(symbolic, torch.SymInt) and isinstance(as_made(symbolic), sympy.Symbol):
                    self.sizes.setdefault(as_made(symbolic), size)

    def _has_shape(self, result: Any, captured: Any) -> bool:
        """Returns whether the tensors of a result have the captured shapes."""
        for value, known in zip(*map(_tensors_and_numbers, (result, captured)), strict=False):
            if isinstance(known, torch.Tensor):
                shape = [expression(size).xreplace(self.sizes) for size in known.shape]
                if len(shape) != value.ndim or any(a != b for a, b in zip(shape, value.shape, strict=True)):
                    return False
        return True

    def _pieces(self, pieces: Sequence[Any], captured: Sequence[Any]) -> list[Any]:
        """Returns the tensors that the program cuts another one into; None for a wrong one, which no operator takes."""
        shapes = [[int(expression(size).xreplace(self.sizes)) for size in tensor.shape] for tensor in captured]
        if any(size < 0 for shape in shapes for size in shape):
            raise ValueError("a piece has a negative size")
        own = [*pieces, *[None] * len(shapes)]
        return [
            piece if list(getattr(piece, "shape", ())) == shape else None
            for piece, shape in zip(own, shapes, strict=False)
        ]


def _tensors_and_numbers(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def _fits(result: Any, captured: Any) -> bool:
    """Returns whether a result has the structure of the captured one: ranks, static sizes, lengths of lists."""
    if isinstance(result, torch.Tensor) and isinstance(captured, torch.Tensor):
        pairs = zip(captured.shape, result.shape, strict=False)
        return captured.ndim == result.ndim and all(one == other for one, other in pairs if isinstance(one, int))
    if isinstance(result, (list, tuple)) and isinstance(captured, (list, tuple)):
        return len(result) == len(captured) and all(map(_fits, result, captured))
    return True
