"""Activation functions and softmax."""

from typing import Any

import torch
from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translations._widening import emit_widened, keeps_numbers, one_node

Number = bool | int | float

# ---------------------------------------------------------------- one ONNX node without parameters

_ACTIVATIONS: dict[Any, tuple[str, dict[str, float]]] = {
    aten.hardsigmoid.default: ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    aten.hardswish.default: ("HardSwish", {}),
    aten.mish.default: ("Mish", {}),
    aten.selu.default: ("Selu", {}),
}


for _target, _row in _ACTIVATIONS.items():
    translates(_target)(one_node(*_row))


@translates(aten.silu.default, since=24)
def aten_silu(op: Emitter, self: Value) -> Value:
    """Emits Swish: self * sigmoid(self)."""
    return op.Swish(self)


@translates(aten.gelu.default, since=20)
def aten_gelu(op: Emitter, self: Value, approximate: str = "none") -> Value:
    """Emits Gelu: self * Phi(self), where Phi is the normal distribution function or its tanh approximation."""
    return op.Gelu(self, approximate=None if approximate == "none" else approximate)


# ---------------------------------------------------------------- rectifiers


@translates(aten.relu.default)
def aten_relu(op: Emitter, self: Value) -> Value:
    """Emits Relu: max(self, 0). Booleans stay unchanged; unsigned integers, which Relu does not admit, are widened."""
    if self.dtype == DataType.BOOL:
        return op.Identity(self)
    return emit_widened(op, "Relu", self)


@translates(aten.hardtanh.default)
def aten_hardtanh(op: Emitter, self: Value, min_val: Number = -1, max_val: Number = 1) -> Value:
    """Emits Clip to [min_val, max_val]."""
    return op.Clip(self, op.cast(min_val, op.out_dtype), op.cast(max_val, op.out_dtype))


@translates(aten.relu6.default)
def aten_relu6(op: Emitter, self: Value) -> Value:
    """Emits Clip to [0, 6]."""
    return aten_hardtanh(op, self, 0, 6)


@translates(aten.leaky_relu.default)
def aten_leaky_relu(op: Emitter, self: Value, negative_slope: float = 0.01) -> Value:
    """Emits LeakyRelu: negative values are multiplied by negative_slope."""
    return emit_widened(op, "LeakyRelu", self, alpha=negative_slope)


@translates(aten.prelu.default)
def aten_prelu(op: Emitter, self: Value, weight: Value) -> Value:
    """Emits PRelu: negative values are multiplied by the weight of their channel, which is axis 1."""
    rank = op.rank(self)
    if op.rank(weight) == 1 and rank > 2 and not _is_one(op.sizes(weight)[0]):
        weight = op.unsqueeze(weight, *range(1, rank - 1))
    elif rank == 0:
        weight = op.reshape(weight, [])
    return op.PRelu(self, weight)


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


@translates(aten._prelu_kernel.default)
def aten__prelu_kernel(op: Emitter, self: Value, weight: Value) -> Value:
    """Emits PRelu with a weight that already broadcasts to self."""
    return op.PRelu(self, weight)


@translates(aten.threshold.default)
@keeps_numbers
def aten_threshold(op: Emitter, self: Value, threshold: Number, value: Number) -> Value:
    """Emits Where: value where self <= threshold, else self; NaN stays because it compares false."""
    limit, number = op.cast(threshold, op.out_dtype), op.cast(value, op.out_dtype)
    return op.Where(op.LessOrEqual(self, limit), number, self)


# ---------------------------------------------------------------- exponential activations


def _is_unscaled(scale: float = 1, input_scale: float = 1) -> bool:
    return scale == 1 and input_scale == 1


@translates(aten.elu.default, supports=_is_unscaled)
def aten_elu(op: Emitter, self: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    """Emits Elu: alpha * (exp(self) - 1) below zero; calls with other scales are decomposed."""
    return emit_widened(op, "Elu", self, alpha=float(alpha))


def _is_float32(self: torch.Tensor) -> bool:
    return self.dtype == torch.float32


@translates(aten.celu.default, supports=_is_float32)
@translates(aten.celu.default, since=28)
def aten_celu(op: Emitter, self: Value, alpha: float = 1.0) -> Value:
    """Emits Celu: max(0, self) + min(0, alpha * (exp(self / alpha) - 1)).

    Below opset 28, ONNX defines it for float32 only.
    """
    return op.Celu(self, alpha=float(alpha))


def _has_far_threshold(self: torch.Tensor, threshold: float = 20) -> bool:
    """Returns whether ONNX Softplus equals torch's softplus, which returns x itself for x above the threshold.

    ONNX Softplus has no threshold, but its result rounds to x there if the threshold is high enough.
    """
    return threshold >= (20 if self.dtype != torch.float64 else 33)


@translates(aten.softplus.default, supports=_has_far_threshold)
def aten_softplus(op: Emitter, self: Value, beta: float = 1, threshold: float = 20) -> Value:
    """Emits Softplus: log(1 + exp(beta * self)) / beta."""
    if beta == 1:
        return _softplus(op, self)
    factor = op.cast(float(beta), op.out_dtype)
    return op.Div(_softplus(op, op.Mul(self, factor)), factor)


@translates(aten.log_sigmoid.default)
def aten_log_sigmoid(op: Emitter, self: Value) -> Value:
    """Emits -Softplus(-self), which equals log(sigmoid(self))."""
    return op.Neg(_softplus(op, op.Neg(self)))


def _softplus(op: Emitter, x: Value) -> Value:
    return emit_widened(op, "Softplus", x)


@translates(aten.glu.default)
def aten_glu(op: Emitter, self: Value, dim: int = -1) -> Value:
    """Emits Split and Mul: the first half along ``dim`` times the sigmoid of the second half.

    ONNX Split with num_outputs refuses an empty axis, as which a dynamic one may be.
    """
    half = op.out_sizes[dim]
    halves = {"num_outputs": 2} if isinstance(half, int) else {}
    value, gate = op.Split(self, None if halves else op.shape([half, half]), axis=dim, outputs=2, **halves)
    return op.Mul(value, op.Sigmoid(gate))


# ---------------------------------------------------------------- shrinking


@translates(aten.hardshrink.default)
def aten_hardshrink(op: Emitter, self: Value, lambd: Number = 0.5) -> Value:
    """Emits Where: 0 where |self| <= lambd, else self. ONNX Shrink would lose NaN."""
    return op.Where(op.LessOrEqual(op.Abs(self), op.cast(lambd, op.out_dtype)), 0.0, self)


@translates(aten.softshrink.default)
def aten_softshrink(op: Emitter, self: Value, lambd: Number = 0.5) -> Value:
    """Emits self - Clip(self, -lambd, lambd)."""
    limit = float(lambd)
    return op.Sub(self, op.Clip(self, op.cast(-limit, op.out_dtype), op.cast(limit, op.out_dtype)))


# ---------------------------------------------------------------- softmax


def _normalized(op: Emitter, op_type: str, self: Value, dim: int) -> Value:
    """Emits Softmax or LogSoftmax along ``dim``; a 0-d tensor gets an axis first because ONNX requires one.

    The last axis is -1, and is written although it is the default: onnxscript's fusers of attention look for it.

    Raises:
        TypeError: the result is not floating point. torch's fake tensors admit integers, and its kernels refuse them.
    """
    if not op.out_dtype.is_floating_point():
        raise TypeError(f"torch computes {op_type} of floating-point tensors only, not of {op.out_dtype.name.lower()}")
    value = op.cast(self, op.out_dtype)
    if op.rank(self) == 0:
        return op.squeeze(op.emit(op_type, op.unsqueeze(value, 0), axis=0), 0)
    result: Value = op.emit(op_type, value, axis=-1 if dim == op.rank(self) - 1 else dim)
    return result


@translates(aten.softmax.int)
def aten_softmax(op: Emitter, self: Value, dim: int, dtype: torch.dtype | None = None) -> Value:
    """Emits Softmax along ``dim`` in ``dtype``."""
    return _normalized(op, "Softmax", self, dim)


@translates(aten.log_softmax.int)
def aten_log_softmax(op: Emitter, self: Value, dim: int, dtype: torch.dtype | None = None) -> Value:
    """Emits LogSoftmax along ``dim`` in ``dtype``."""
    return _normalized(op, "LogSoftmax", self, dim)


@translates(aten._softmax.default)
def aten__softmax(op: Emitter, self: Value, dim: int, half_to_float: bool) -> Value:
    """Emits Softmax, in float32 if ``half_to_float``."""
    return _normalized(op, "Softmax", self, dim)


@translates(aten._log_softmax.default)
def aten__log_softmax(op: Emitter, self: Value, dim: int, half_to_float: bool) -> Value:
    """Emits LogSoftmax, in float32 if ``half_to_float``."""
    return _normalized(op, "LogSoftmax", self, dim)
