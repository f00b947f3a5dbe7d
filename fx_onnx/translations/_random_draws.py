"""Random draws that several families emit: uniform and normal numbers, and dropout."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_ir import DataType, Value

from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.translation.emitter import Emitter


def draw(op: Emitter, op_type: str, sizes: Sequence[Size], dtype: DataType) -> Value:
    """Emits RandomUniform or RandomNormal, or its Like form on a tensor of ``sizes`` if a size is symbolic."""
    drawn_dtype = dtype if dtype in (DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16) else DataType.FLOAT
    if all(isinstance(size, int) for size in sizes):
        drawn = op.emit(op_type, shape=list(sizes), dtype=drawn_dtype)
    else:
        drawn = op.emit(f"{op_type}Like", op.expand(op.constant(0, drawn_dtype), sizes), dtype=drawn_dtype)
    if dtype == DataType.BFLOAT16 and op_type == "RandomUniform":
        # bfloat16 has 8 binary digits; a longer number could round up to 1.
        drawn = op.Mul(op.Floor(op.Mul(drawn, 256.0)), 1 / 256)
    return op.cast(drawn, dtype)


def apply_dropout(op: Emitter, x: Value, p: float) -> tuple[Value, Value]:
    """Emits dropout as a product with a random mask; returns the result and the boolean mask of the kept elements.

    A Dropout node is not used because runtimes remove it: ONNX Runtime removes a Dropout whose output another node
    reads, although its ``training_mode`` is true.

    Args:
        op: the emitter.
        x: a floating-point value of any shape, whose sizes are known.
        p: the probability that an element becomes zero, below 1.
    """
    dtype = x.dtype or DataType.FLOAT
    kept = op.GreaterOrEqual(draw(op, "RandomUniform", op.sizes(x), DataType.FLOAT), float(p))
    return op.Mul(op.Mul(x, 1 / (1 - p)), op.Cast(kept, to=dtype)), kept
