"""Losses: the two that ONNX has operators for. The others are decomposed."""

import torch
from onnx_ir import Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter

_REDUCTION = ("none", "mean", "sum")


def _has_class_targets(self: torch.Tensor, target: torch.Tensor, label_smoothing: float = 0.0) -> bool:
    """Returns whether ONNX's losses can express the call.

    They require a batch axis and class indices as targets, and have no label smoothing. ONNX Runtime fails on an empty
    batch.
    """
    not_empty = all(not isinstance(size, int) or size > 0 for size in self.shape)
    return self.dim() > 1 and target.dtype == torch.int64 and label_smoothing == 0 and not_empty


@translates(aten.cross_entropy_loss.default, supports=_has_class_targets)
def aten_cross_entropy_loss(
    op: Emitter,
    self: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore_index: Size = -100,
    label_smoothing: float = 0.0,
) -> Value:
    """Emits SoftmaxCrossEntropyLoss: -weight[target] * log_softmax(self)[target]; the mean is weighted."""
    return op.SoftmaxCrossEntropyLoss(
        self, target, weight, reduction=_REDUCTION[reduction], ignore_index=ignore_index, outputs=1
    )


@translates(aten.nll_loss.default, aten.nll_loss_nd.default, aten.nll_loss2d.default, supports=_has_class_targets)
def aten_nll_loss(
    op: Emitter,
    self: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore_index: Size = -100,
) -> Value:
    """Emits NegativeLogLikelihoodLoss: -weight[target] * self[target] of log-probabilities; the mean is weighted."""
    return op.NegativeLogLikelihoodLoss(
        self, target, weight, reduction=_REDUCTION[reduction], ignore_index=ignore_index
    )
