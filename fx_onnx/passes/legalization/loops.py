"""Legalization of loops and recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import attribute, constant_array, dims, producer_of
from fx_onnx.passes.rules import Result

__all__ = ["Iteration", "legalize_initial_states", "loop"]


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
    last = _kept(f, before, f"{name}.again")  # all others are inserted before it; it returns the condition, or goes
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


def _kept(f: NodeBuilder, value: Value, name: str) -> ir.Node:
    """Returns a node that returns a value as it is."""
    node = ir.node("Identity", [value], name=name, metadata_props=dict(f.node.metadata_props))
    node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = name, value.type, value.shape
    return node


@legalizes("Loop(count | None, condition | None)", until=10)
def loop_with_state(f: NodeBuilder, node: ir.Node, count: Value | None, condition: Value | None) -> Result:
    """Loop(n, c) without a carried value → Loop(n, c, 0).

    Legal because nothing reads the value. Opset 10 requires one.
    """
    body = node.attributes.pop("body").as_graph()
    name = f.editor.unique_name(f"{node.name or node.outputs[0].name}.unused")
    before = ir.val(f"{name}.before", DataType.INT64, ())
    kept = _kept(f, before, name)
    body.append(kept)
    body.inputs.append(before)
    body.outputs.insert(1, kept.outputs[0])
    zero = f.constant(0, DataType.INT64)
    return f.emit("Loop", [count, condition, zero], {"body": body}, outputs=len(node.outputs) + 1)[1:]


@legalizes("If(condition)", until=10)
def if_of_equal_shapes(node: ir.Node) -> Result:
    """Refuses an If whose branches return tensors of different shapes, which opset 11 is the first to allow."""
    branches = (node.attributes[name].as_graph().outputs for name in ("then_branch", "else_branch"))
    for first, second in zip(*branches, strict=True):
        a, b = dims(first), dims(second)
        if a is None or b is None or len(a) != len(b):
            return "its branches return tensors of different ranks"
        if any(isinstance(x, int) and isinstance(y, int) and x != y for x, y in zip(a, b, strict=True)):
            return "its branches return tensors of different shapes"
    return None


@legalizes("Scan(*values)", until=8)
def scan_of_batch(f: NodeBuilder, node: ir.Node, values: Sequence[Value]) -> Result:
    """Scan(states, sequences) → Scan(, states, sequences) with a first axis of size 1, which is squeezed again.

    Legal because Scan of opset 8 runs over the second axis for each element of a batch. Other axes and directions are
    refused.
    """
    for name in ("scan_input_axes", "scan_output_axes", "scan_input_directions", "scan_output_directions"):
        if any(f.attribute(name, [])):
            return f"it has {name}"
    kept = {name: node.attributes.pop(name) for name in ("body", "num_scan_inputs")}
    batched = [None, *(f.Unsqueeze(value, [0]) for value in values)]
    results = f.emit("Scan", batched, kept, outputs=len(node.outputs))
    for output, result in zip(node.outputs, results, strict=True):
        result.type = output.type
    return [f.Squeeze(result, [0]) for result in results]


@legalizes("NonZero(x)", until=8)
def count_by_loop(f: NodeBuilder, x: Value) -> Result:
    """NonZero(ones of a length) → Loop that collects the numbers of its iterations.

    Legal because all places of a vector of ones are returned, in order. NonZero of other values is refused.
    """
    maker = producer_of(x, "ConstantOfShape", "Expand")
    length = ones = None
    if maker is not None and maker.op_type == "Expand":
        ones, length = constant_array(maker.inputs[0]), maker.inputs[1]
    elif maker is not None and (value := attribute(maker, "value")) is not None:
        ones, length = value.numpy(), maker.inputs[0]
    if ones is None or ones.size != 1 or not ones.all() or dims(length) != (1,):
        return "that opset has no operator that finds elements"

    def number_of_iteration(b: NodeBuilder, number: Value, carried: Sequence[Value]) -> Iteration:
        return Iteration([b.Identity(*carried)], [number])

    unused = f.constant(0, DataType.INT64)  # a Loop of opset 8 carries a value
    return f.Unsqueeze(loop(f, [unused], number_of_iteration, count=f.Squeeze(length, [0]))[1], [0])


_STATES = {"RNN": (5,), "GRU": (5,), "LSTM": (5, 6)}
"""The positions of the initial states among the inputs."""


@legalizes("RNN(x, *rest)", "GRU(x, *rest)", "LSTM(x, *rest)", targets=("tract",))
def legalize_initial_states(f: NodeBuilder, node: ir.Node, x: Value, rest: Sequence[Value | None]) -> Result:
    """GRU(x, w, r) → GRU(x, w, r, initial_h=zeros); the same for RNN, and for LSTM with its two states.

    Legal because ONNX defines an absent initial state as zeros. tract (measured with 0.23.9) needs the number of rows
    to make them: it panics at a layer without an initial state if the batch is dynamic.
    """
    places, width = _STATES[node.op_type], f.attribute("hidden_size", 0)
    inputs = [x, *rest, *[None] * (places[-1] - len(rest))]
    if all(inputs[place] is not None for place in places):
        return None
    if f.attribute("layout", 0) or not width:
        return "the batch is the first axis, or the size of the state is not an attribute"
    directions = 2 if f.attribute("direction", "forward") == "bidirectional" else 1
    zeros = f.Expand(f.constant(0, x.dtype), f.Concat([directions], f.Shape(x, start=1, end=2), [width], axis=0))
    for place in places:
        inputs[place] = inputs[place] or zeros
    return f.emit(node.op_type, inputs, node.attributes, outputs=len(node.outputs))
