"""Recurrences of linear attention and of state space models: loops over tokens, without a limit of their number.

ONNX Scan runs one step at a time, and most of the time of a step passes between its nodes. So a linear attention takes
chunks of tokens: matrix products give what the tokens of a chunk contribute to each other, and one step of the Scan
adds what the state contributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.targets.onnxruntime import is_single
from fx_onnx.translation.emitter import Emitter, as_tuple

_CHUNK, _CHANNEL_CHUNK = 32, 16
"""The largest number of tokens in a chunk. With a decay for each channel, the cost grows with its square."""


@translates("fx_onnx::linear_attention")
def linear_attention(
    op: Emitter, query: Value, key: Value, value: Value, decay: Value, beta: Value | None, state: Value, scale: float
) -> Sequence[Value]:
    """Emits a Scan over chunks of tokens.

    All chunks have the same size, at most ``_CHUNK``, so one token is a chunk of size 1 without padding.
    """
    batch, tokens, heads, width = op.sizes(value)
    groups = op.sizes(key)[2]
    by_channel = op.rank(decay) == 4
    largest = _CHANNEL_CHUNK if by_channel else _CHUNK
    count = _at_least_1((tokens + largest - 1) // largest)
    size = _at_least_1((tokens + count - 1) // count)
    decay = decay if by_channel else op.unsqueeze(decay, 3)
    query = query if scale == 1 else op.with_sizes(op.Mul(query, scale), op.sizes(query))
    given = [query, key, value, decay, *(() if beta is None else (op.unsqueeze(beta, 3),))]
    chunks = [_chunks(op, tensor, count, size, groups) for tensor in given]
    levels = op.Slice(op.constant(_levels(largest)), [0, 0], op.shape([size, size]), [0, 1])
    state_sizes = op.sizes(state)
    first = op.reshape(state, [batch, groups, heads // groups, *state_sizes[2:]])
    scanned = chunks if by_channel else _within_chunks(op, chunks, levels, by_channel)

    def step(inner: Emitter, before: Value, *slices: Value) -> Sequence[Value]:
        chunk = _within_chunks(inner, slices, levels, by_channel) if by_channel else slices
        return _after_chunk(inner, before, chunk)

    last, results = _scan(op, step, [first], scanned, axis=0)
    results = op.Transpose(results, perm=[1, 0, 4, 2, 3, 5])
    results = op.Reshape(results, op.shape([batch, count * size, heads, width]))
    return op.Slice(results, [0], op.shape([tokens]), [1]), op.Reshape(last, op.shape(state_sizes))


def _at_least_1(size: Size) -> Size:
    return max(size, 1) if isinstance(size, int) else torch.sym_max(size, 1)


def _chunks(op: Emitter, x: Value, count: Size, size: Size, groups: Size) -> Value:
    """Returns (batch, token, head, d) as (chunk, batch, group, head of the group, token, d), padded with zeros."""
    batch, tokens, heads, width = op.sizes(x)
    padding = count * size - tokens
    if not (isinstance(padding, int) and padding == 0):
        x = op.with_sizes(op.Pad(x, op.shape([0, 0, 0, 0, 0, padding, 0, 0])), [batch, count * size, heads, width])
    x = op.reshape(x, [batch, count, size, groups, heads // groups, width])
    return op.transpose(x, [1, 0, 3, 4, 2, 5])


def _levels(size: int) -> list[list[int]]:
    """Returns for places i > j of a chunk the highest bit in which they differ, -1 for i = j, and -2 for i < j."""
    return [[(i ^ j).bit_length() - 1 if i >= j else -2 for j in range(size)] for i in range(size)]


def _within_chunks(op: Emitter, chunks: Sequence[Value], levels: Value, by_channel: bool) -> list[Value]:
    """Returns what a step of the Scan reads of each chunk.

    These are the queries that read the state, the weights of the chunk's own values, the keys that write to the state,
    its decay over the chunk, the values, and with the delta rule the keys that read the state.
    """
    query, key, value, decay, *beta = chunks
    rank = 5 if by_channel else 6
    total = op.CumSum(decay, -2)
    whole = op.ReduceSum(decay, [-2])
    growth, is_past, is_later, steps = op.Exp(total), op.Greater(levels, -2), op.Greater(levels, -1), decay
    if by_channel:
        is_past, is_later, steps = op.Unsqueeze(is_past, [-1]), op.Unsqueeze(is_later, [-1]), op.Unsqueeze(decay, [-2])

    def scores(rows: Value) -> Value:
        """Returns the products of rows with the keys up to the row, which decay from the key to the row."""
        if not by_channel:
            return op.Mul(op.MatMul(rows, _transposed(op, key, rank)), pairs)
        products = op.MatMul(op.Mul(op.Unsqueeze(key, [-3]), pairs), op.Unsqueeze(rows, [-1]))
        return op.Squeeze(products, [-1])

    # Differences of the totals would lose the digits of small decays after a large one.
    between = op.CumSum(op.Where(is_later, steps, 0.0), -3 if by_channel else -2)
    pairs = op.Exp(op.Where(is_past, between, -math.inf))
    leaving = op.Mul(key, op.Exp(op.CumSum(decay, -2, exclusive=1, reverse=1)))
    parts = [op.Mul(query, growth), scores(query), _transposed(op, leaving, rank), _transposed(op, op.Exp(whole), rank)]
    if not beta:
        return [*parts, value]
    weighted = op.Mul(key, beta[0])
    inverse = _inverse(op, scores(weighted), levels, _CHANNEL_CHUNK if by_channel else _CHUNK)
    return [*parts, op.MatMul(inverse, op.Mul(value, beta[0])), op.MatMul(inverse, op.Mul(weighted, growth))]


def _inverse(op: Emitter, lower: Value, levels: Value, size: int) -> Value:
    """Returns the inverse of I + the strictly lower triangle of ``lower``, by merging the inverses of its blocks.

    The blocks have 1, 2, 4, … rows: of [[A, 0], [B, D]], the inverse is [[A', 0], [-D' B A', D']]. A power series needs
    as many products, but its terms overflow for equal keys.
    """
    inverse = op.Cast(op.Equal(levels, -1), to=DataType.FLOAT)
    for level in range((size - 1).bit_length()):
        block = op.Where(op.Equal(levels, level), lower, 0.0)
        inverse = op.Sub(inverse, block if level == 0 else op.MatMul(op.MatMul(inverse, block), inverse))
    return inverse


def _after_chunk(op: Emitter, state: Value, chunk: Sequence[Value]) -> list[Value]:
    """Returns the state after a chunk, and the results of its tokens."""
    query, weights, key, decay, value, *reading = chunk
    if reading:
        value = op.Sub(value, op.MatMul(reading[0], state))
    results = op.Add(op.MatMul(query, state), op.MatMul(weights, value))
    return [op.Add(op.Mul(state, decay), op.MatMul(key, value)), results]


def _transposed(op: Emitter, x: Value, rank: int) -> Value:
    return op.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])


@translates("fx_onnx::linear_attention", since=27, supports=is_single)
def linear_attention_27(
    op: Emitter, query: Value, key: Value, value: Value, decay: Value, beta: Value | None, state: Value, scale: float
) -> Sequence[Value]:
    """Emits LinearAttention, whose heads share no queries and keys: those of a group are repeated."""
    heads = op.sizes(value)[2]

    def repeated(x: Value) -> Value:
        batch, tokens, groups, width = op.sizes(x)
        count = heads // groups
        x = op.expand(op.unsqueeze(x, 3), [batch, tokens, groups, count, width]) if count != 1 else x
        return op.reshape(x, [batch, tokens, heads, width])

    return _one_node(op, "", repeated(query), repeated(key), value, decay, beta, state, scale)


def _one_node(
    op: Emitter, domain: str, query: Value, key: Value, value: Value, decay: Value, beta: Value | None, state: Value,
    scale: float,
) -> Sequence[Value]:  # fmt: skip
    """Emits LinearAttention of a domain."""
    packed = [
        op.reshape(tensor, [*op.sizes(tensor)[:2], math.prod(op.sizes(tensor)[2:])])
        for tensor in (query, key, value, decay)
    ]
    results, last = as_tuple(
        op.emit(
            "LinearAttention", *packed[:3], state, packed[3], beta, domain=domain, outputs=2, scale=scale,
            update_rule="gated" if beta is None else "gated_delta", q_num_heads=op.sizes(key)[2],
            kv_num_heads=op.sizes(value)[2],
        )
    )  # fmt: skip
    for result in (results, last):
        result.type = ir.TensorType(DataType.FLOAT)
    return op.reshape(op.with_sizes(results, op.sizes(packed[2])), op.sizes(value)), last


def runtime_linear_attention(
    op: Emitter, query: Value, key: Value, value: Value, decay: Value, beta: Value | None, state: Value, scale: float
) -> Sequence[Value]:
    """Emits com.microsoft.LinearAttention, in which several heads may share their queries and keys."""
    return _one_node(op, "com.microsoft", query, key, value, decay, beta, state, scale)


# ---------------------------------------------------------------- convolutions


@translates("fx_onnx::causal_conv1d")
def causal_conv1d(op: Emitter, input: Value, weight: Value, bias: Value | None, past: Value | None) -> Value:
    """Emits Conv, or for a single token the sum of products, which takes a tenth of the time in ONNX Runtime."""
    channels, taps = op.sizes(weight)
    tokens = op.out_sizes[2]
    joined = input if past is None else op.Concat(past, input, axis=2)

    def one(inner: Emitter) -> Value:
        result: Value = inner.ReduceSum(inner.Mul(joined, weight), [2])
        return result if bias is None else inner.Add(result, inner.Unsqueeze(bias, [1]))

    def many(inner: Emitter) -> Value:
        pads = None if past is not None else [taps - 1, 0]
        kernel = inner.Unsqueeze(weight, [1])
        result: Value = inner.Conv(joined, kernel, bias, group=channels, kernel_shape=[taps], pads=pads)
        return result

    if past is None or isinstance(tokens, int):
        return one(op) if tokens == 1 and past is not None else many(op)
    then_branch, else_branch = ((inner := op.nested()).finish([make(inner)]) for make in (one, many))
    is_one = op.Equal(op.Squeeze(op.shape([tokens]), [0]), 1)
    chosen: Value = op.If(is_one, then_branch=then_branch, else_branch=else_branch)
    return chosen


def _is_at_most_single(input: torch.Tensor) -> bool:
    return input.dtype in (torch.float32, torch.float16, torch.bfloat16)


@translates("fx_onnx::causal_conv1d", since=27, supports=_is_at_most_single)
def causal_conv1d_27(op: Emitter, input: Value, weight: Value, bias: Value | None, past: Value | None) -> Value:
    """Emits CausalConvWithState, whose second result, the next state, nothing reads: that of transformers is longer."""
    results, _ = op.CausalConvWithState(input, op.Unsqueeze(weight, [1]), bias, past)
    return results


# ---------------------------------------------------------------- loops over tokens


@translates("fx_onnx::selective_scan")
def selective_scan(
    op: Emitter, input: Value, dt: Value, A: Value, B: Value, C: Value, state: Value
) -> Sequence[Value]:  # fmt: skip
    """Emits a Scan over tokens: the decay is another one for each element of the state, so chunks have no products."""

    def step(inner: Emitter, state: Value, dt: Value, added: Value, B: Value, C: Value) -> Sequence[Value]:
        state = inner.Add(inner.Mul(inner.Exp(inner.Mul(dt, A)), state), inner.Mul(added, B))
        return [state, inner.MatMul(state, C)]

    tokens = [op.Unsqueeze(dt, [2]), op.Unsqueeze(op.Mul(dt, input), [2]), op.Unsqueeze(B, [1]), op.Unsqueeze(C, [2])]
    last, results = _scan(op, step, [state], tokens, axis=3)
    return op.Squeeze(results, [2]), last


@translates("fx_onnx::rwkv")
def rwkv(
    op: Emitter, decay: Value, time_first: Value, key: Value, value: Value, numerator: Value, denominator: Value,
    largest: Value,
) -> Sequence[Value]:  # fmt: skip
    """Emits a Scan over tokens."""

    def weights(inner: Emitter, old: Value, new: Value) -> tuple[Value, Value, Value]:
        most = inner.Max(old, new)
        return most, inner.Exp(inner.Sub(old, most)), inner.Exp(inner.Sub(new, most))

    def step(inner: Emitter, a: Value, b: Value, m: Value, k: Value, v: Value) -> Sequence[Value]:
        def sums(old: Value, new: Value) -> tuple[Value, Value]:
            return inner.Add(inner.Mul(old, a), inner.Mul(new, v)), inner.Add(inner.Mul(old, b), new)

        _, old, new = weights(inner, m, inner.Add(k, time_first))
        result = inner.Div(*sums(old, new))
        m, old, new = weights(inner, inner.Sub(m, decay), k)
        return [*sums(old, new), m, result]

    *states, results = _scan(op, step, [numerator, denominator, largest], [key, value], axis=1)
    return results, *states


def _scan(
    op: Emitter, step: Callable[..., Sequence[Value]], states: Sequence[Value], tokens: Sequence[Value], axis: int
) -> tuple[Value, ...]:
    """Emits a Scan along an axis: the last states, then the results, along the same axis.

    ``step(inner, *states, *slices)`` emits the body and returns the new states, then the result of the slices.
    """
    inputs = [op.graph_input("scanned", value.dtype or DataType.FLOAT) for value in (*states, *tokens)]
    inner = op.nested(inputs)
    body = inner.finish(step(inner, *inputs))
    return as_tuple(
        op.Scan(
            *states, *tokens, body=body, num_scan_inputs=len(tokens), scan_input_axes=[axis] * len(tokens),
            scan_output_axes=[axis], outputs=len(states) + 1,
        )
    )  # fmt: skip
