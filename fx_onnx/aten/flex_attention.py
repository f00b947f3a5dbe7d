"""Lowering of flex_attention to scores, the user's functions of the scores, softmax and a matrix product.

torch.export keeps the operator whole. Its bodies are the user's functions of one position, ``score_mod`` and
``mask_mod``. The block mask adds no information to its ``mask_mod``, so it is not used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.fx_nodes import meta_value, replace, splice
from fx_onnx.aten.tracing.replacement_tracer import ReplacementTracer
from fx_onnx.messages.errors import TranslationError
from fx_onnx.torch_internals.torch_private import enable_python_dispatcher


def lower_flex_attention(program: AtenProgram) -> AtenProgram:
    """Replaces every flex_attention by simpler operators; rewrites the graphs in place.

    Raises:
        TranslationError: the user's functions cannot be vectorized over all positions.
    """
    target = torch.ops.higher_order.flex_attention
    calls = [node for graph in program.graphs for node in graph.find_nodes(op="call_function", target=target)]
    tracer = ReplacementTracer.of(program)
    for node in calls:
        _lower(program, node, tracer)
    return program


def _lower(program: AtenProgram, node: Node, tracer: ReplacementTracer) -> None:
    query, key, value, score_mod, block_mask, scale, _, *buffers = cast("tuple[Any, ...]", node.args)
    score_buffers, mask_buffers = (list(group) for group in (*buffers, (), ())[:2])
    score_body, mask_body = (_body(program, modifier) for modifier in (score_mod, block_mask[-1]))

    def modified(scores: Tensor, *buffers: Any) -> Tensor:
        """Applies the user's functions: the modified scores, and -inf where the mask is False."""
        positions = [torch.arange(size, device=scores.device) for size in scores.shape]
        at_scores = _over_all_positions(score_body, 1, len(score_buffers))
        at_mask = _over_all_positions(mask_body, 0, len(mask_buffers))
        (score,) = at_scores(scores, *positions, *buffers[: len(score_buffers)])
        (mask,) = at_mask(*positions, *buffers[len(score_buffers) :])
        return torch.where(mask, score, -math.inf)

    # vmap needs a trace without composite operators; the trace of the attention below keeps them
    with tracer.fake_mode, enable_python_dispatcher():
        scores = _scores(query.meta["val"], key.meta["val"], 1.0)
    arguments = [scores, *map(meta_value, score_buffers), *map(meta_value, mask_buffers)]
    modify = GraphModule(program.constants, _trace(tracer, modified, arguments, node, False))
    inputs: list[Any] = [query, key, value, *score_buffers, *mask_buffers]
    tensors = list(dict.fromkeys(operand for operand in inputs if isinstance(operand, Node)))

    def attention(*values: Any) -> Any:
        env = dict(zip(tensors, values, strict=True))
        q, k, v, *rest = (env[operand] if isinstance(operand, Node) else operand for operand in inputs)
        return _attention(q, v, modify(_scores(q, k, float(scale)), *rest))

    traced = _trace(tracer, attention, [tensor.meta["val"] for tensor in tensors], node, True)
    results, made = splice(node.graph, node, tensors, traced)
    replace(node.graph, node, results, made)


def _trace(
    tracer: ReplacementTracer, function: Callable[..., Any], values: Sequence[Any], node: Node, keeps_composites: bool
) -> Graph:
    graph = tracer.trace(function, values, node, keeps_composites)
    if graph is None:
        raise TranslationError(
            "The score_mod or mask_mod of a flex_attention uses an operator that torch lowers to its `prims`, which "
            "have no translation. Write the function with ATen operators."
        )
    return graph


def _body(program: AtenProgram, node: Any) -> GraphModule:
    return GraphModule(program.constants, program.bodies[str(node.target)])


def _scores(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """Returns the scaled products of queries and keys, (batch, heads, queries, keys), in float32 or float64."""
    precise = torch.float64 if query.dtype == torch.float64 else torch.float32
    return (query.to(precise) @ _repeat_heads(key, query).to(precise).transpose(-2, -1)) * scale


def _attention(query: Tensor, value: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the results of flex_attention for modified scores.

    A row whose keys are all masked has the output 0 and the statistics -inf.

    Returns:
        the output, (batch, heads, queries, features); for each row, (batch, heads, queries), the logarithm to base 2
        of the sum of exponentials; for each row the largest score, divided by log(2).
    """
    largest = scores.amax(-1, keepdim=True)
    masked = largest == -math.inf
    output = torch.where(masked, 0.0, scores.softmax(-1)).to(query.dtype) @ _repeat_heads(value, query)
    total = torch.where(masked, -math.inf, scores.logsumexp(-1, keepdim=True))
    return output, total.squeeze(-1) / math.log(2), largest.squeeze(-1) / math.log(2)


def _repeat_heads(tensor: Tensor, query: Tensor) -> Tensor:
    """Repeats the heads of keys or values for grouped queries, where several query heads share one of them."""
    batch, heads, length, features = tensor.shape
    times = query.shape[1] // heads
    if not isinstance(times, int) or times != 1:
        tensor = tensor.unsqueeze(2).expand(batch, heads, times, length, features).flatten(1, 2)
    return tensor


def _over_all_positions(function: Callable[..., Any], scores: int, buffers: int) -> Callable[..., Any]:
    """Vectorizes a function of (scores, batch, head, query, key, buffers) over the four positions."""
    for axis in (3, 2, 1, 0):
        axes = [0 if axis == index else None for index in range(4)]
        function = torch.vmap(function, in_dims=(*[0] * scores, *axes, *[None] * buffers))
    return function
