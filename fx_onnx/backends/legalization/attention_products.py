"""Legalization of Attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx.onnx_model.dtypes import torch_dtype
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import counted, scalar_size, sizes_of
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import dims, is_read
from fx_onnx.passes.rules import DeclinedError, Result

__all__ = ["legalize_attention"]

_SMALLEST_HEAD = 16
_HALVES = (DataType.FLOAT16, DataType.BFLOAT16)


@legalizes("Attention(query, keys, values, *rest)", since=23, targets=("tensorrt",))
def legalize_attention(
    f: NodeBuilder, node: ir.Node, query: Value, keys: Value, values: Value, rest: Sequence[Value | None]
) -> Result:
    """Attention(q, k, v, mask, past_k, past_v) → MatMul(Softmax(MatMul(q · scale, kᵀ) + mask), v), with Concats.

    Legal because this is the definition. TensorRT for RTX (1.7.1) has kernels for one result in float16 and bfloat16
    without a past, a softcap and computed lengths, with at least two heads of at least 16 elements; these nodes stay.
    It ends the process if two operands are one value. It fuses the products of the other form too.
    """
    mask, past_keys, past_values, lengths = (*rest, *[None] * 4)[:4]
    results = [index for index, output in enumerate(node.outputs) if is_read(output)]
    if lengths is not None or 3 in results:
        return "it has lengths of the keys, or returns scores"
    if _has_kernel(f, query, keys, values, has_more=past_keys is not None or results != [0]):
        return None
    heads, kv_heads = f.attribute("q_num_heads", None), f.attribute("kv_num_heads", None)
    queries, keys, values = _split(f, query, heads), _split(f, keys, kv_heads), _split(f, values, kv_heads)
    offset = None
    if past_keys is not None:
        offset = scalar_size(f, past_keys, 2)
        keys, values = (f.Concat(past, x, axis=2) for past, x in ((past_keys, keys), (past_values, values)))
    head_size = sizes_of(queries)[3]
    if not isinstance(head_size, int):
        raise DeclinedError("the size of its heads is not static")
    scores = _scores(f, queries, _repeated(f, keys, queries), f.attribute("scale", None) or 1 / math.sqrt(head_size))
    shown = _causal(f, scores, offset) if f.attribute("is_causal", 0) else None
    if mask is not None and mask.dtype == DataType.BOOL:
        shown = mask if shown is None else f.And(shown, mask)
    elif mask is not None:
        scores = f.Add(scores, mask)
    result = _weighted(f, scores, shown, _repeated(f, values, queries))
    if heads:
        result = f.Reshape(f.Transpose(result, perm=[0, 2, 1, 3]), [0, 0, -1])
    return [result, keys, values][: len(node.outputs)]


def _has_kernel(f: NodeBuilder, query: Value, keys: Value, values: Value, *, has_more: bool) -> bool:
    """Returns whether TensorRT has a kernel."""
    sizes = dims(query)
    if has_more or query.dtype not in _HALVES or f.attribute("softcap", 0.0) or sizes is None or len(sizes) != 4:
        return False
    is_large = isinstance(sizes[1], int) and sizes[1] > 1 and isinstance(sizes[3], int) and sizes[3] >= _SMALLEST_HEAD
    return is_large and len({query, keys, values}) == 3


def _split(f: NodeBuilder, x: Value, heads: int | None) -> Value:
    """Returns (batch, heads, length, size) of (batch, length, heads * size); with four axes, x itself."""
    return x if not heads else f.Transpose(f.Reshape(x, [0, 0, heads, -1]), perm=[0, 2, 1, 3])


def _repeated(f: NodeBuilder, x: Value, queries: Value) -> Value:
    """Returns the keys or values with each head repeated for the query heads that share it."""
    heads, wanted = sizes_of(x)[1], sizes_of(queries)[1]
    if heads == wanted:
        return x
    if not isinstance(heads, int) or not isinstance(wanted, int):
        raise DeclinedError("its numbers of heads are not static")
    copies = f.Expand(f.Unsqueeze(x, [2]), [1, 1, wanted // heads, 1, 1])
    return f.Reshape(copies, [0, wanted, -1, int(sizes_of(x)[3] or 0)])


def _scores(f: NodeBuilder, queries: Value, keys: Value, scale: float) -> Value:
    scores = f.MatMul(f.Mul(queries, scale), f.Transpose(keys, perm=[0, 1, 3, 2]))
    softcap = f.attribute("softcap", 0.0)
    return f.Mul(f.Tanh(f.Div(scores, softcap)), softcap) if softcap else scores


def _causal(f: NodeBuilder, scores: Value, offset: Value | None) -> Value:
    """Returns whether a query sees a key: its position, counted after the past, is not before that of the key."""
    rows, columns = (counted(f, scalar_size(f, scores, axis)) for axis in (2, 3))
    return f.GreaterOrEqual(f.Unsqueeze(rows if offset is None else f.Add(rows, offset), [1]), columns)


def _weighted(f: NodeBuilder, scores: Value, shown: Value | None, values: Value) -> Value:
    """Returns the mean of the values with the weights Softmax(scores); zeros for a query that sees no key."""
    if shown is None:
        return f.MatMul(_softmax(f, scores), values)
    # The number of keys, doubled, because float16 needs minus infinity to hide a key: twice the lowest number.
    doubled = f.ReduceSum(f.Where(shown, 2.0, 0.0), [-1], keepdims=1)
    kept = f.Clip(doubled, None, 1.0)
    lowest = float(torch.finfo(torch_dtype(f.dtype)).min)
    hiding = f.Mul(doubled if f.dtype == DataType.FLOAT16 else kept, lowest)
    weights = _softmax(f, f.Add(scores, f.Where(shown, 0.0, hiding)))
    return f.Mul(f.MatMul(weights, values), kept)


def _softmax(f: NodeBuilder, scores: Value) -> Value:
    precision = f.attribute("softmax_precision", None)
    if precision is None or precision == scores.dtype:
        return f.Softmax(scores, axis=-1)
    return f.Cast(f.Softmax(f.Cast(scores, to=precision), axis=-1), to=f.dtype)
