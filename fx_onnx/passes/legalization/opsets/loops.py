"""Loops that steps to older opsets insert."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder

__all__ = ["Iteration", "loop"]


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
        carried: the values that the first iteration starts with. Their shapes may change from iteration to iteration.
        body: emits one iteration, given a builder for the body, the number of the iteration and the carried values.
        count: the number of iterations, a scalar; None means no limit.
        condition: whether the first iteration runs; None means that it does.
    """
    name = f.editor.unique_name(f"{f.node.name or f.node.outputs[0].name}.Loop")
    number, before = (
        ir.Value(name=f"{name}.{each}", type=ir.TensorType(dtype), shape=ir.Shape(()))
        for each, dtype in (("number", DataType.INT64), ("condition", DataType.BOOL))
    )
    states = [ir.Value(name=f"{name}.carried_{i}", type=value.type) for i, value in enumerate(carried)]
    condition = f.constant(np.array(True)) if condition is None else condition
    # The node that all others are inserted before. It returns the condition, or is removed.
    last = ir.node("Identity", [before], name=f"{name}.again", metadata_props=dict(f.node.metadata_props))
    last.outputs[0].name, last.outputs[0].type, last.outputs[0].shape = last.name, before.type, before.shape
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
    for result, value in zip(results, [*carried, *collected], strict=True):
        result.type = value.type
    return results
