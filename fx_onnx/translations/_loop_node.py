"""Builds a Loop node from a Python function that emits the body."""

from collections.abc import Callable, Sequence

from onnx_ir import DataType, Value

from fx_onnx.translation.emitter import Emitter, as_tuple


def emit_loop(
    op: Emitter,
    step: Callable[..., Sequence[Value]],
    *initial: Value,
    rounds: Value | None = None,
    condition: Callable[..., Value] | None = None,
) -> tuple[Value, ...]:
    """Emits a Loop that carries values and returns their final values.

    ``step(inner, iteration, *carried)`` emits the body and returns the carried values of the next iteration. The loop
    ends after ``rounds`` iterations, or when ``condition(emitter, *carried)`` is false. The body may read outer
    values.
    """
    dtypes_of = [value.dtype or DataType.FLOAT for value in initial]
    carried = [op.graph_input("carried", dtype) for dtype in dtypes_of]
    iteration = op.graph_input("iteration", DataType.INT64, ())
    again = op.graph_input("again", DataType.BOOL, ())
    inner = op.nested([iteration, again, *carried])
    results = step(inner, iteration, *carried)
    after = inner.Identity(again) if condition is None else condition(inner, *results)
    body = inner.finish([after, *results])
    before = True if condition is None else condition(op, *initial)
    final = op.Loop(rounds, before, *initial, body=body, outputs=len(initial))
    return as_tuple(final)
