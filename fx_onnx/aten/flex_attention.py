"""flex_attention → attention written out: scores, the user's functions of them at every position, softmax, product.

torch.export keeps it whole, with the user's two functions of one position, ``score_mod`` and ``mask_mod``, as bodies. A
block mask says nothing more than its ``mask_mod`` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from fx_onnx.aten.decompose import Tracer, fake_mode, splice, use_instead
from fx_onnx.aten.functionalize import AtenProgram
from fx_onnx.core.errors import TranslationError


def lower_flex_attention(program: AtenProgram) -> AtenProgram:
    """The program with every flex_attention written out; rewritten in place.

    Raises:
        TranslationError: the user's functions cannot be computed at all positions together.
    """
    target = torch.ops.higher_order.flex_attention
    calls = [node for graph in program.graphs for node in graph.find_nodes(op="call_function", target=target)]
    tracer = Tracer(program.constants, program.bodies, fake_mode(program.graph))
    for node in calls:
        _write_out(program, node, tracer)
    return program


def _write_out(program: AtenProgram, node: Node, tracer: Tracer) -> None:
    query, key, value, score_mod, block_mask, scale, _, *buffers = cast("tuple[Any, ...]", node.args)
    of_score, of_mask = (list(each) for each in (*buffers, (), ())[:2])
    score_body, mask_body = (_body(program, each) for each in (score_mod, block_mask[-1]))

    def modified(scores: Tensor, *buffers: Any) -> Tensor:
        """The scores as the user's function changes them, -inf where the mask is False."""
        positions = [torch.arange(size, device=scores.device) for size in scores.shape]
        (score,) = _at_all_positions(score_body, 1, len(of_score))(scores, *positions, *buffers[: len(of_score)])
        (mask,) = _at_all_positions(mask_body, 0, len(of_mask))(*positions, *buffers[len(of_score) :])
        return torch.where(mask, score, -math.inf)

    # vmap is no operator: what it makes is traced on its own, down to operators that are not composed
    with tracer.fake_mode:
        scores = _scores(query.meta["val"], key.meta["val"], 1.0)
    modification = _traced(tracer, modified, [scores, *map(_value, of_score), *map(_value, of_mask)], node, False)
    modify = GraphModule(program.constants, modification)
    inputs: list[Any] = [query, key, value, *of_score, *of_mask]
    tensors = list(dict.fromkeys(each for each in inputs if isinstance(each, Node)))

    def attention(*values: Any) -> Any:
        env = dict(zip(tensors, values, strict=True))
        q, k, v, *rest = (env[each] if isinstance(each, Node) else each for each in inputs)
        return _attention(q, v, modify(_scores(q, k, float(scale)), *rest))

    traced = _traced(tracer, attention, [each.meta["val"] for each in tensors], node, True)
    results, made = splice(node.graph, node, tensors, traced)
    use_instead(node.graph, node, results, made)


def _value(argument: Any) -> Any:
    return argument.meta["val"] if isinstance(argument, Node) else argument


def _traced(
    tracer: Tracer, function: Callable[..., Any], values: Sequence[Any], node: Node, keeps_composites: bool
) -> Graph:
    graph = tracer.function_graph(function, values, node, keeps_composites)
    if graph is None:
        raise TranslationError("The functions of a flex_attention need operators that are not ATen's.")
    return graph


def _body(program: AtenProgram, node: Any) -> GraphModule:
    return GraphModule(program.constants, program.bodies[str(node.target)])


def _scores(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """The products of queries and keys, in single precision at least."""
    precise = torch.float64 if query.dtype == torch.float64 else torch.float32
    return (query.to(precise) @ _for_all_heads(key, query).to(precise).transpose(-2, -1)) * scale


def _attention(query: Tensor, value: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The output, and of each row the logarithm to base 2 of the sum of exponentials, and the largest score likewise.

    A row whose keys are all masked gives 0, and -inf.
    """
    largest = scores.amax(-1, keepdim=True)
    masked = largest == -math.inf
    output = torch.where(masked, 0.0, scores.softmax(-1)).to(query.dtype) @ _for_all_heads(value, query)
    total = torch.where(masked, -math.inf, scores.logsumexp(-1, keepdim=True))
    return output, total.squeeze(-1) / math.log(2), largest.squeeze(-1) / math.log(2)


def _for_all_heads(tensor: Tensor, query: Tensor) -> Tensor:
    """Keys or values of every query head, of which several share one, and of every row of the batch."""
    batch, heads, length, features = tensor.shape
    times = query.shape[1] // heads
    if not isinstance(times, int) or times != 1:
        tensor = tensor.unsqueeze(2).expand(batch, heads, times, length, features).flatten(1, 2)
    return tensor


def _at_all_positions(function: Callable[..., Any], scores: int, buffers: int) -> Callable[..., Any]:
    """A function of (scores, batch, head, query, key, buffers) over all of the four."""
    for axis in (3, 2, 1, 0):
        places = [0 if axis == place else None for place in range(4)]
        function = torch.vmap(function, in_dims=(*[0] * scores, *places, *[None] * buffers))
    return function
