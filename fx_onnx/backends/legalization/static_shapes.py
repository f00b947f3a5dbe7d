"""Forms that need static sizes: moves of elements, broadcasts and recurrent layers for Qualcomm's NPUs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import with_shape
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import constant_array, dims, producer_of
from fx_onnx.passes.rules import Result

__all__ = [
    "legalize_broadcasts",
    "legalize_constant_selections",
    "legalize_functions_of_products",
    "legalize_moves_of_many_axes",
    "legalize_recurrent_steps",
    "legalize_silu",
    "legalize_softplus",
]

MOST_AXES = 5
"""The number of axes of a tensor of the NPU."""

_MOST_STEPS = 256
_WIDE_AFTER = ("LayerNormalization", "Sigmoid")
_LOWEST = -65504.0
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def static_sizes(f: NodeBuilder, value: Value) -> tuple[int, ...] | None:
    """Returns the sizes; None if one is not a number."""
    sizes = dims(with_shape(f, value))
    if sizes is None:
        return None
    numbers = tuple(size for size in sizes if isinstance(size, int))
    return numbers if len(numbers) == len(sizes) else None


@legalizes("GatherND(x, indices, batch_dims=batch)", targets=("qnn",))
def legalize_constant_selections(f: NodeBuilder, x: Value, indices: Value, batch: int) -> Result:
    """GatherND(x, constant) → Reshape(Gather(Reshape(x), rows)), or Reshape(x).

    Legal because the position of a row is the sum of its indices times their strides, which are numbers here; a Gather
    of all rows in order changes nothing. The compiler of QNN (2.7) has no GatherND of booleans, such as masks.
    """
    places, sizes = constant_array(indices), static_sizes(f, x)
    if places is None or sizes is None or batch:
        return "its indices or sizes are not constants"
    depth = places.shape[-1]
    places = np.where(places < 0, places + np.array(sizes[:depth]), places)
    count = math.prod(sizes[:depth])
    rows = np.ravel_multi_index(tuple(np.moveaxis(places, -1, 0)), sizes[:depth]).ravel()
    result = x
    if not np.array_equal(rows, np.arange(count)):
        result = f.Gather(f.Reshape(x, [count, *sizes[depth:]]), rows.astype(np.int64), axis=0)
    return f.Reshape(result, [*places.shape[:-1], *sizes[depth:]])


@legalizes("Reshape(~Transpose(x, perm=perm), _)", targets=("qnn",))
def legalize_moves_of_many_axes(f: NodeBuilder, node: ir.Node, x: Value, perm: Sequence[int] | None) -> Result:
    """Reshape(Transpose(Reshape(x))) → the same of at most five axes.

    Legal because a Transpose moves axes that stay neighbours together, and an axis of one element has no
    position. A tensor of QNN has at most five axes.
    """
    sizes, target = static_sizes(f, x), static_sizes(f, node.outputs[0])
    if sizes is None or target is None or perm is None or len(sizes) <= MOST_AXES:
        return None
    groups: list[list[int]] = []
    for axis in (axis for axis in perm if sizes[axis] != 1):
        last = groups[-1][-1] if groups else -1
        if groups and last < axis and all(sizes[between] == 1 for between in range(last + 1, axis)):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    if len(groups) > MOST_AXES:
        return f"{len(groups)} axes move"
    before = sorted(groups)
    source = producer_of(x, "Reshape", "Unsqueeze", "Squeeze")
    merged = [math.prod(sizes[axis] for axis in group) for group in before]
    parts = f.Reshape(x if source is None else source.inputs[0], merged)
    return f.Reshape(f.Transpose(parts, perm=[before.index(group) for group in groups]), list(target))


@legalizes("Add(a, b)", "Mul(a, b)", targets=("qnn",))
def legalize_broadcasts(f: NodeBuilder, node: ir.Node, a: Value, b: Value) -> Result:
    """Sigmoid(Add(a, b)) → Sigmoid(Add(a, Expand(b))); also Mul and LayerNormalization.

    Legal because this is the definition of a broadcast. It is for rows that repeat over an outer axis. Otherwise the
    compiler of QNN (2.7) fuses the two operators wrongly: with 16 rows or another multiple of 8, the numbers are wrong,
    or the process ends.
    """
    sizes = static_sizes(f, node.outputs[0])
    if sizes is None or not any(use.node.op_type in _WIDE_AFTER for use in node.outputs[0].uses()):
        return None
    operands = [f.Expand(x, np.array(sizes)) if _repeats_rows(f, x, sizes) else x for x in (a, b)]
    return None if operands == [a, b] else f.emit(node.op_type, operands, {})[0]


def _repeats_rows(f: NodeBuilder, x: Value, sizes: tuple[int, ...]) -> bool:
    """Returns whether a broadcast to the sizes repeats matrices of more than one row and column."""
    own = static_sizes(f, x)
    if own is None or len(own) < 2 or 1 in own[-2:]:
        return False
    outer = (*[1] * (len(sizes) - len(own)), *own)[:-2]
    return any(size == 1 < wanted for size, wanted in zip(outer, sizes, strict=False))


@legalizes("LSTM(x, w, r, *rest)", targets=("qnn",))
def legalize_recurrent_steps(
    f: NodeBuilder, node: ir.Node, x: Value, w: Value, r: Value, rest: Sequence[Value | None]
) -> Result:
    """LSTM(x, w, r) → MatMul, Sigmoid and Tanh for each step.

    Legal because this is the definition. The LSTM of QNN (2.7) is wrong by 1e-2 in float16, and the steps by 1e-3.
    """
    bias, lengths, state, cell, peepholes = (*rest, *[None] * 5)[:5]
    sizes = static_sizes(f, x)
    others = ("layout", "activations", "clip", "input_forget")
    if sizes is None or lengths or peepholes or any(f.attribute(name, None) for name in others):
        return "it is not a plain LSTM with static sizes"
    direction = f.attribute("direction", "forward")
    count = 2 if direction == "bidirectional" else 1
    if sizes[0] * count > _MOST_STEPS:
        return f"it has more than {_MOST_STEPS} steps"
    results = [
        _direction(f, x, [w, r, bias, state, cell], index, is_reverse=direction == "reverse" or index == 1)
        for index in range(count)
    ]
    joined = [
        f.Concat(*parts, axis=axis) if count > 1 else parts[0]
        for parts, axis in zip(zip(*results, strict=True), (1, 0, 0), strict=True)
    ]
    return joined[: len(node.outputs)]


def _direction(
    f: NodeBuilder, x: Value, weights: Sequence[Value | None], index: int, *, is_reverse: bool
) -> tuple[Value, Value, Value]:
    """Returns the states of all steps, (steps, 1, batch, size), and the last state and cell, (1, batch, size)."""
    steps, batch, _ = static_sizes(f, x) or (0, 0, 0)
    size = f.attribute("hidden_size")
    zeros = f.Expand(f.constant(0, x.dtype), np.array([1, batch, size]))
    w, r, bias, state, cell = (None if part is None else f.Slice(part, [index], [index + 1], [0]) for part in weights)
    gates = f.MatMul(x, f.Transpose(w, perm=[0, 2, 1]))
    if bias is not None:
        first, second = f.emit("Split", [bias, [4 * size, 4 * size]], {"axis": 1}, outputs=2)
        gates = f.Add(gates, f.Add(first, second))
    recurrent = f.Transpose(r, perm=[0, 2, 1])
    state, cell = (zeros if value is None else value for value in (state, cell))
    states = []
    for step in reversed(range(steps)) if is_reverse else range(steps):
        sums = f.Add(f.Slice(gates, [step], [step + 1], [0]), f.MatMul(state, recurrent))
        into, out, kept, new = f.emit("Split", [sums, [size] * 4], {"axis": 2}, outputs=4)
        cell = f.Add(f.Mul(f.Sigmoid(kept), cell), f.Mul(f.Sigmoid(into), f.Tanh(new)))
        state = f.Mul(f.Sigmoid(out), f.Tanh(cell))
        states.append(state)
    ordered = states[::-1] if is_reverse else states
    return f.Unsqueeze(f.Concat(*ordered, axis=0), [1]), state, cell


@legalizes("x * Sigmoid(x)", "x * Sigmoid(Max(x, -65504.0))", "Swish(x, alpha=1.0)", targets=("qnn",))
def legalize_silu(f: NodeBuilder, x: Value) -> Result:
    """x * Sigmoid(x), Swish(x) → h + h * Tanh(h), for h = x / 2.

    Legal because Sigmoid(x) is (1 + Tanh(h)) / 2. The Sigmoid of QNN (2.7) has 2.4 times the error of float16, and its
    Tanh 1.0 times. The second form is that of ``legalize_functions_of_products``, which comes to the Sigmoid first.
    """
    half = f.Mul(x, 0.5)
    return f.Add(f.Mul(f.Tanh(half), half), half)


@legalizes("Gelu(x)", "Sigmoid(x)", "Tanh(x)", targets=("qnn",))
def legalize_functions_of_products(f: NodeBuilder, node: ir.Node, x: Value) -> Result:
    """Tanh(product) → Tanh(Max(product, -65504)); also Gelu and Sigmoid.

    Legal because the functions have reached their limits at the lowest number of float16. Otherwise the compiler of
    QNN (2.7) fuses them into the product, and the results are wrong by 2e-3, small results of Tanh by 2e-2.
    """
    before = producer_of(x, "Add")
    operands = [x] if before is None else [*before.inputs]
    if not any(producer_of(operand, *_PRODUCTS) for operand in operands):
        return None
    return f.emit(node.op_type, [f.Max(x, _LOWEST)], node.attributes)[0]


@legalizes("Softplus(x)", targets=("qnn",))
def legalize_softplus(f: NodeBuilder, x: Value) -> Result:
    """Softplus(x) → Relu(x) + Log(1 + Exp(-|x|)).

    Legal because both are log(1 + exp(x)). The Softplus of QNN (2.7) is wrong by 1e-2 around 0.
    """
    return f.Add(f.Relu(x), f.Log(f.Add(f.Exp(f.Neg(f.Abs(x))), 1.0)))
