"""Legalization of loops and recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.loops import Iteration, kept, loop
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import attribute, constant_array, dims, producer_of
from fx_onnx.passes.rules import Result

__all__ = ["legalize_cast_sequences", "legalize_initial_states"]


@legalizes("Loop(count | None, condition | None)", until=10)
def loop_with_state(f: NodeBuilder, node: ir.Node, count: Value | None, condition: Value | None) -> Result:
    """Loop(n, c) without a carried value → Loop(n, c, 0).

    Legal because nothing reads the value. Opset 10 requires one.
    """
    body = node.attributes.pop("body").as_graph()
    name = f.editor.unique_name(f"{node.name or node.outputs[0].name}.unused")
    before = ir.val(f"{name}.before", DataType.INT64, ())
    unread = kept(f, before, name)
    body.append(unread)
    body.inputs.append(before)
    body.outputs.insert(1, unread.outputs[0])
    zero = f.constant(0, DataType.INT64)
    return f.emit("Loop", [count, condition, zero], {"body": body}, outputs=len(node.outputs) + 1)[1:]


@legalizes("If(condition)", until=10)
def if_of_equal_shapes(node: ir.Node) -> Result:
    """If(condition) → If(condition), which is refused if its branches return tensors of different shapes.

    Legal because the node stays as it is. Opset 11 is the first to allow other shapes.
    """
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
    if all(inputs[index] is not None for index in places):
        return None
    if f.attribute("layout", 0) or not width:
        return "the batch is the first axis, or the size of the state is not an attribute"
    directions = 2 if f.attribute("direction", "forward") == "bidirectional" else 1
    zeros = f.Expand(f.constant(0, x.dtype), f.Concat([directions], f.Shape(x, start=1, end=2), [width], axis=0))
    for index in places:
        inputs[index] = inputs[index] or zeros
    return f.emit(node.op_type, inputs, node.attributes, outputs=len(node.outputs))


_MOVES = ("Transpose", "Reshape", "Squeeze", "Unsqueeze")
_HALVES = (DataType.FLOAT16, DataType.BFLOAT16)


@legalizes("RNN(x, *rest)", "GRU(x, *rest)", "LSTM(x, *rest)", targets=("tensorrt",), after_casts=True)
def legalize_cast_sequences(f: NodeBuilder, node: ir.Node, x: Value, rest: Sequence[Value | None]) -> Result:
    """GRU(Cast(x), …) → GRU(Cast(x) + -0.0, …) for x of float16 or bfloat16; the same for RNN and LSTM.

    Legal because the sum is the number, also if that is 0.0 or -0.0. TensorRT for RTX (1.7.1) moves the Cast, also
    behind a Transpose, into the loop over the steps, and then fails at the shape of a step.
    """
    moved = x
    while (move := producer_of(moved, *_MOVES)) is not None and move.inputs[0] is not None:
        moved = move.inputs[0]
    cast = producer_of(moved, "Cast")
    if cast is None or cast.inputs[0] is None or cast.inputs[0].dtype not in _HALVES:
        return None
    return f.emit(node.op_type, [f.Add(x, -0.0), *rest], node.attributes, outputs=len(node.outputs))
