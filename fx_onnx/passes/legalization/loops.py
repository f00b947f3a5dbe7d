"""Legalization of loops and recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder

__all__ = ["Iteration", "kept", "loop"]


class Iteration(NamedTuple):
    """The results of one iteration.

    Attributes:
        carried: the values for the next iteration, one for each carried value.
        collected: the values that the Loop concatenates along a new first axis.
        again: whether another iteration follows; None if the number of iterations alone decides.
    """

    carried: Sequence[Value] = ()
    collected: Sequence[Value] = ()
    again: Value | None = None


def loop(
    f: NodeBuilder,
    carried: Sequence[Value],
    body: Callable[[NodeBuilder, Value, Sequence[Value]], Iteration],
    *,
    count: Value | None = None,
    condition: Value | None = None,
) -> Sequence[Value]:
    """Inserts a Loop and returns its results: the carried values after the last iteration, then the collected ones.

    Args:
        f: the builder that inserts the Loop.
        carried: the values that the first iteration starts with. Their sizes may change from iteration to iteration.
        body: emits one iteration, given a builder for the body, the number of the iteration and the carried values.
        count: the number of iterations, a scalar; None means no limit.
        condition: whether the first iteration runs; None means that it does.
    """
    name = f.editor.unique_name(f"{f.node.name or f.node.outputs[0].name}.Loop")
    number = ir.val(f"{name}.number", DataType.INT64, ())
    before = ir.val(f"{name}.condition", DataType.BOOL, ())
    states = [ir.Value(name=f"{name}.carried_{i}", type=value.type) for i, value in enumerate(carried)]
    for value, state in zip(carried, states, strict=True):
        state.shape = None if value.shape is None else ir.Shape([None] * len(value.shape))
    condition = f.constant(np.array(True)) if condition is None else condition
    last = kept(f, before, f"{name}.again")  # all others are inserted before it; it returns the condition, or goes
    graph = ir.Graph([number, before, *states], [], nodes=[last], name=name)
    inner = NodeBuilder(last, f.editor, f.dtype)
    done = body(inner, number, states)
    # ONNX Runtime collects a wrong value if a collected output of the body is also an input of the body.
    collected = [value if value.producer() is not None else inner.Identity(value) for value in done.collected]
    graph.outputs.extend([last.outputs[0] if done.again is None else done.again, *done.carried, *collected])
    f.editor.remove_if_unused(last)
    results = f.emit(
        "Loop",
        [count, condition, *carried],
        {"body": ir.AttrGraph("body", graph)},
        outputs=len(done.carried) + len(collected),
    )
    for result, state in zip(results[: len(states)], states, strict=True):
        result.type, result.shape = state.type, state.shape
    for result, value in zip(results[len(states) :], collected, strict=True):
        result.type, result.shape = value.type, None if value.shape is None else ir.Shape([None, *value.shape])
    return results


def kept(f: NodeBuilder, value: Value, name: str) -> ir.Node:
    """Returns a node that returns a value as it is."""
    node = ir.node("Identity", [value], name=name, metadata_props=dict(f.node.metadata_props))
    node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = name, value.type, value.shape
    return node
