"""Random operators. No seed is set, so that each run of the model draws new numbers."""

from collections.abc import Sequence

import torch
from onnx_ir import Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translations._random_draws import apply_dropout, draw


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
    return draw(op, "RandomUniform", op.out_sizes, op.out_dtype)


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
    return draw(op, "RandomNormal", op.out_sizes, op.out_dtype)


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
    return draw(op, "RandomUniform", op.out_sizes, op.out_dtype)


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
    return draw(op, "RandomNormal", op.out_sizes, op.out_dtype)


@translates(aten.dropout.default)
def aten_dropout(op: Emitter, input: Value, p: float, train: bool) -> Value:
    """Emits dropout in training: an element becomes 0 with probability p, else it is multiplied by 1 / (1 - p)."""
    return aten_native_dropout(op, input, p, train)[0] if train and p else input


@translates(aten.native_dropout.default)
def aten_native_dropout(op: Emitter, input: Value, p: float, train: bool | None) -> tuple[Value, Value]:
    """Emits dropout, and returns the mask of the kept elements as well."""
    sizes = op.sizes(input)
    if train is False or p == 0:
        return input, op.expand(op.constant(True), sizes)
    if p == 1:
        return op.Mul(input, 0.0), op.expand(op.constant(False), sizes)
    return apply_dropout(op, input, p)
