"""BatchNormalization and Dropout in their training forms, for exports that keep the training mode.

These translations are not registered, because the usual ones suit a runtime for inference better: batch normalization
is computed from ReduceMean, and dropout from a random mask. ``TRAINING_FORMS`` has precedence over them.
"""

from __future__ import annotations

import math

import torch
from onnx_ir import Value

from fx_onnx.extension_points.translation_table import Translation
from fx_onnx.onnx_model.dtypes import value_dtype
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter, as_tuple
from fx_onnx.translations._known_tensors import scale_and_bias

__all__ = ["TRAINING_FORMS"]


def _is_training(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    training: bool,
) -> bool:
    """Returns whether the call uses the statistics of the batch, has a channel axis, and has one dtype."""
    others = (weight, bias, running_mean, running_var)
    return training and input.dim() > 1 and all(tensor is None or tensor.dtype == input.dtype for tensor in others)


def aten__native_batch_norm_legit_functional(
    op: Emitter,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, Value, Value, Value, Value]:
    """Emits BatchNormalization with training_mode.

    Returns the result, the mean and 1 / √(var + eps) of the batch, and the new running statistics. ONNX updates the
    running variance with the variance of the population, and torch with that of the sample, which is n / (n - 1) times
    as large.

    Batch norm without running statistics is decomposed. ONNX Runtime writes the new statistics over initializers that
    are no graph inputs, as constants would be, so the next run computes other numbers.
    """
    dtype, sizes = value_dtype(input), op.sizes(input)
    scale, shift = scale_and_bias(op, weight, bias, sizes[1:2], dtype)
    count = math.prod((*sizes[:1], *sizes[2:]))
    all_, others = op.number(count, dtype), op.number(count - 1, dtype)
    # ONNX Runtime writes new statistics over the old ones where they are not graph outputs, also over the default value
    # of a graph input. So the node reads products, not the buffers: 2 * mean, which is exact, and var * (n - 1) / n.
    old = (op.Mul(running_mean, 2.0), op.Mul(running_var, op.Div(others, all_)))
    results = op.emit(
        "BatchNormalization", input, scale, shift, *old, outputs=3, epsilon=eps, momentum=1 - momentum, training_mode=1
    )
    result, doubled, population = as_tuple(results)
    axes = [0, *range(2, len(sizes))]
    kept = op.ReduceMean(input, axes, keepdims=1)
    centred, mean = op.Sub(input, kept), op.Squeeze(kept, axes)
    var = op.ReduceMean(op.Mul(centred, centred), axes, keepdims=0)
    new_mean = op.Mul(op.Add(doubled, op.Mul(mean, momentum)), 0.5)
    new_var = op.Mul(population, op.Div(all_, others))
    return result, mean, op.Reciprocal(op.Sqrt(op.Add(var, eps))), new_mean, new_var


def _drops(p: float, train: bool | None) -> bool:
    """Returns whether the call drops some elements; the ratio of Dropout is below 1."""
    return train is not False and 0 < p < 1


def aten_dropout(op: Emitter, input: Value, p: float, train: bool) -> Value:
    """Emits Dropout with training_mode."""
    return aten_native_dropout(op, input, p, train)[0]


def aten_native_dropout(op: Emitter, input: Value, p: float, train: bool | None) -> tuple[Value, Value]:
    """Emits Dropout with training_mode, and returns the mask of the kept elements as well.

    ONNX Runtime removes such a node unless its optimizer EliminateDropout is disabled, as ONNXProgram does.
    """
    result, mask = as_tuple(op.emit("Dropout", input, op.constant(p), op.constant(True), outputs=2))
    return result, mask


TRAINING_FORMS: tuple[Translation, ...] = (
    Translation(
        aten._native_batch_norm_legit_functional.default,
        aten__native_batch_norm_legit_functional,
        supports=_is_training,
    ),
    Translation(aten.dropout.default, aten_dropout, supports=_drops),
    Translation(aten.native_dropout.default, aten_native_dropout, supports=_drops),
)
"""The translations that have precedence over the registered ones."""
