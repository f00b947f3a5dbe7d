"""Random operators. No seed is set, so that each run of the model draws new numbers."""

from collections.abc import Sequence

import torch
from onnx_ir import DataType, Value

from fx_onnx.core.symbolic_sizes import Size
from fx_onnx.core.translation_table import translates
from fx_onnx.translation.emitter import Emitter

aten = torch.ops.aten


def _draw(op: Emitter, op_type: str, sizes: Sequence[Size]) -> Value:
    """Emits RandomUniform or RandomNormal, or its Like form if a size is symbolic."""
    dtype = op.out_dtype
    drawn_dtype = dtype if dtype in (DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16) else DataType.FLOAT
    if all(isinstance(size, int) for size in sizes):
        drawn = op.emit(op_type, shape=list(sizes), dtype=drawn_dtype)
    else:
        drawn = op.emit(f"{op_type}Like", op.expand(op.constant(0, drawn_dtype), sizes), dtype=drawn_dtype)
    if (
        dtype == DataType.BFLOAT16 and op_type == "RandomUniform"
    ):  # keep the eight bits of bfloat16, so that no number rounds up to 1
        drawn = op.Mul(op.Floor(op.Mul(drawn, 256.0)), 1 / 256)
    return op.cast(drawn, dtype)


@translates(aten.rand.default)
def aten_rand(
    op: Emitter,
    size: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> Value:
    """Emits RandomUniform over [0, 1)."""
    return _draw(op, "RandomUniform", op.out_sizes)


@translates(aten.randn.default)
def aten_randn(
    op: Emitter,
    size: Sequence[Size],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> Value:
    """Emits RandomNormal with mean 0 and variance 1."""
    return _draw(op, "RandomNormal", op.out_sizes)


@translates(aten.rand_like.default)
def aten_rand_like(
    op: Emitter,
    self: Value,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> Value:
    """Emits RandomUniform over [0, 1) in the sizes of self."""
    return _draw(op, "RandomUniform", op.out_sizes)


@translates(aten.randn_like.default)
def aten_randn_like(
    op: Emitter,
    self: Value,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> Value:
    """Emits RandomNormal in the sizes of self."""
    return _draw(op, "RandomNormal", op.out_sizes)


@translates(aten.dropout.default)
def aten_dropout(op: Emitter, input: Value, p: float, train: bool) -> Value:
    """Emits Dropout in training: zeros with probability p, the others times 1 / (1 - p). Else returns the input."""
    return aten_native_dropout(op, input, p, train)[0] if train and p else input


@translates(aten.native_dropout.default)
def aten_native_dropout(op: Emitter, input: Value, p: float, train: bool | None) -> tuple[Value, Value]:
    """Emits Dropout and returns the mask of the kept elements as well."""
    sizes = op.sizes(input)
    if train is False or p == 0:
        return input, op.expand(op.constant(True), sizes)
    if p == 1:  # ONNX requires a ratio below 1
        return op.Mul(input, 0.0), op.expand(op.constant(False), sizes)
    result, kept = op.Dropout(input, op.constant(float(p)), True, outputs=2)
    return result, kept
