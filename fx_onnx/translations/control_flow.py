"""Higher-order operators: If, Loop and Scan, whose bodies read outer values directly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.onnx_model.dtypes import value_dtype
from fx_onnx.translation.emitter import Emitter, as_tuple

higher_order = torch.ops.higher_order


@translates(higher_order.cond)
def cond(op: Emitter, pred: Any, true_graph: str, false_graph: str, operands: Sequence[Any] = ()) -> Sequence[Value]:
    """Emits If; each branch is the translated FX submodule."""
    branches = []
    for body in (true_graph, false_graph):
        inner = op.nested()
        branches.append(inner.finish(inner.inline(body, operands)))
    results = op.If(op.cast(pred, DataType.BOOL), then_branch=branches[0], else_branch=branches[1], outputs=len(op.out))
    return as_tuple(results)


@translates(higher_order.while_loop)
def while_loop(
    op: Emitter,
    cond_fn: str,
    body_fn: str,
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any] = (),
) -> Sequence[Value]:
    """Emits Loop without a trip count; the condition is computed before the loop and at the end of each iteration."""
    return _while(op, cond_fn, body_fn, carried_inputs, additional_inputs, stacked=False)


def _while(
    op: Emitter,
    cond_fn: str,
    body_fn: str,
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any],
    stacked: bool,
) -> Sequence[Value]:
    """Returns the final carried values and, if ``stacked``, those of all iterations along axis 0."""
    initial = [_tensor(op, value) for value in carried_inputs]
    (before,) = op.inline(cond_fn, [*initial, *additional_inputs])
    sizes = [op.sizes(value) if stacked else _result_sizes(op, i) for i, value in enumerate(initial)]
    carried = [op.graph_input("carried", value_dtype(value), sizes[i]) for i, value in enumerate(initial)]
    iteration = op.graph_input("iteration", DataType.INT64, ())
    inner = op.nested([iteration, op.graph_input("again", DataType.BOOL, ()), *carried])
    results = [_tensor(inner, value) for value in inner.inline(body_fn, [*carried, *additional_inputs])]
    (after,) = inner.inline(cond_fn, [*results, *additional_inputs])
    repeated = results if stacked else []
    body = inner.finish([inner.cast(after, DataType.BOOL), *results, *repeated])
    final = op.Loop(None, op.cast(before, DataType.BOOL), *initial, body=body, outputs=len(results) + len(repeated))
    return as_tuple(final)


@translates(higher_order.while_loop_stack_output)
def while_loop_stack_output(
    op: Emitter,
    cond_fn: str,
    body_fn: str,
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any] = (),
) -> Sequence[Value]:
    """Emits Loop whose carried values are scan outputs too.

    Without an iteration, the results have one row, the initial values, as in torch.
    """
    loop = _while(op, cond_fn, body_fn, carried_inputs, additional_inputs, stacked=True)
    count = len(carried_inputs)
    results = []
    for i, rows in enumerate(loop[count:]):
        initial = op.unsqueeze(_tensor(op, carried_inputs[i]), 0)
        length = op.Max(op.Shape(rows, start=0, end=1), [1])
        results.append(op.Slice(op.Concat(rows, initial, axis=0), [0], length, [0]))
    return results


@translates(higher_order.scan)
def scan(
    op: Emitter, combine_fn: str, init: Sequence[Any], xs: Sequence[Any], additional_inputs: Sequence[Any] = ()
) -> Sequence[Value]:
    """Emits Scan along axis 0; the results are the final carries, then the stacked outputs."""
    carries = [op.graph_input("carry", value_dtype(value), op.sizes(value)) for value in init]
    slices = [op.graph_input("slice", value_dtype(value), op.sizes(value)[1:]) for value in xs]
    inner = op.nested([*carries, *slices])
    body = inner.finish(inner.inline(combine_fn, [*carries, *slices, *additional_inputs]))
    results = op.Scan(*init, *xs, body=body, num_scan_inputs=len(xs), outputs=len(op.out))
    return as_tuple(results)


@translates(higher_order.map_impl)
def map_impl(op: Emitter, f: str, xs: Sequence[Any], pos_args: Sequence[Any] = ()) -> Sequence[Value]:
    """Emits Scan without a carry: the function applied to each slice along axis 0."""
    return scan(op, f, (), xs, pos_args)


@translates(higher_order.associative_scan)
def associative_scan(
    op: Emitter, combine_fn: str, xs: Sequence[Any], additional_inputs: Sequence[Any] = ()
) -> Sequence[Value]:
    """Emits Loop over the slices along axis 0; the first slice is the initial value.

    It is not a Scan, because ONNX Scan requires at least one slice, and the axis may have only the first one.
    """
    first = [op.with_sizes(op.Gather(x, 0, axis=0), op.sizes(x)[1:]) for x in xs]
    count = op.Sub(op.Shape(xs[0], start=0, end=1), [1])
    carried = [op.graph_input("carried", value_dtype(x), op.sizes(x)[1:]) for x in xs]
    iteration, again = op.graph_input("iteration", DataType.INT64, ()), op.graph_input("again", DataType.BOOL, ())
    inner = op.nested([iteration, again, *carried])
    position = inner.Add(iteration, 1)
    slices = [inner.with_sizes(inner.Gather(x, position, axis=0), op.sizes(x)[1:]) for x in xs]
    results = inner.inline(combine_fn, [*carried, *slices, *additional_inputs])
    body = inner.finish([again, *results, *results])
    looped = as_tuple(op.Loop(op.Reshape(count, []), None, *first, body=body, outputs=2 * len(xs)))
    rows = looped[len(xs) :]
    return [op.Concat(op.unsqueeze(row, 0), rest, axis=0) for row, rest in zip(first, rows, strict=True)]


def _tensor(op: Emitter, value: Any) -> Value:
    """Returns a carried number as a 0-d tensor."""
    if isinstance(value, Value):
        return value
    return op.with_sizes(op.cast(value, DataType.FLOAT if isinstance(value, float) else DataType.INT64), ())


def _result_sizes(op: Emitter, index: int) -> Sequence[Any] | None:
    """Returns the sizes of a carried tensor after the loop; a size that changes between iterations is a symbol."""
    out = op.out[index]
    return tuple(out.shape) if isinstance(out, torch.Tensor) else ()
