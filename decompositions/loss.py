"""Decompositions of losses into arithmetic, gather and reductions."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from fx_onnx.decompositions.registry import aten, decomposes

Number = bool | int | float
NONE, MEAN, SUM = 0, 1, 2


def _reduce(loss: Tensor, reduction: int) -> Tensor:
    """Returns the loss of each element, its mean or its sum."""
    return loss.mean() if reduction == MEAN else loss.sum() if reduction == SUM else loss


@decomposes(aten.l1_loss.default)
def l1_loss(self: Tensor, target: Tensor, reduction: int = MEAN) -> Tensor:
    """Returns |self - target|, reduced."""
    return _reduce((self - target).abs(), reduction)


@decomposes(aten.mse_loss.default)
def mse_loss(self: Tensor, target: Tensor, reduction: int = MEAN) -> Tensor:
    """Returns (self - target)², reduced."""
    difference = self - target
    return _reduce(difference * difference, reduction)


@decomposes(aten.smooth_l1_loss.default)
def smooth_l1_loss(self: Tensor, target: Tensor, reduction: int = MEAN, beta: float = 1.0) -> Tensor:
    """Returns d² / (2 beta) where d = |self - target| is below beta, and d - beta / 2 elsewhere, reduced."""
    distance = (self - target).abs()
    if beta == 0:
        return _reduce(distance, reduction)
    return _reduce(torch.where(distance < beta, distance * distance * (0.5 / beta), distance - 0.5 * beta), reduction)


@decomposes(aten.huber_loss.default)
def huber_loss(self: Tensor, target: Tensor, reduction: int = MEAN, delta: float = 1.0) -> Tensor:
    """Returns d² / 2 where d = |self - target| is below delta, and delta (d - delta / 2) elsewhere, reduced."""
    distance = (self - target).abs()
    linear = (distance - 0.5 * delta) * delta
    return _reduce(torch.where(distance < delta, distance * distance * 0.5, linear), reduction)


@decomposes(aten.soft_margin_loss.default)
def soft_margin_loss(self: Tensor, target: Tensor, reduction: int = MEAN) -> Tensor:
    """Returns log(1 + exp(-target * self)), reduced."""
    return _reduce(torch.log1p(torch.exp(-target * self)), reduction)


@decomposes(aten.binary_cross_entropy.default)
def binary_cross_entropy(self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = MEAN) -> Tensor:
    """Returns -(target log self + (1 - target) log(1 - self)), reduced; the logarithms are clamped to at least -100."""
    loss = (target - 1) * torch.log1p(-self).clamp(min=-100) - target * torch.log(self).clamp(min=-100)
    return _reduce(loss if weight is None else loss * weight, reduction)


@decomposes(aten.binary_cross_entropy_with_logits.default)
def binary_cross_entropy_with_logits(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:
    """Returns (1 - target) self - (1 + (pos_weight - 1) target) logsigmoid(self), reduced."""
    log_sigmoid = F.logsigmoid(self)
    if pos_weight is not None:
        log_sigmoid = log_sigmoid * ((pos_weight - 1) * target + 1)
    loss = (1 - target) * self - log_sigmoid
    return _reduce(loss if weight is None else loss * weight, reduction)


@decomposes(aten.kl_div.default)
def kl_div(self: Tensor, target: Tensor, reduction: int = MEAN, *, log_target: bool = False) -> Tensor:
    """Returns target (log target - self), or 0 where target is 0, reduced; self holds log-probabilities."""
    if log_target:
        return _reduce(torch.exp(target) * (target - self), reduction)
    return _reduce(torch.xlogy(target, target) - target * self, reduction)


@decomposes(aten.poisson_nll_loss.default)
def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """Returns exp(input) - target input, or input - target log input if not ``log_input``, reduced.

    ``full`` adds Stirling's approximation of log(target!) for targets above 1.
    """
    loss = torch.exp(input) - target * input if log_input else input - target * torch.log(input + eps)
    if full:
        stirling = target * torch.log(target) - target + 0.5 * torch.log(2 * math.pi * target)
        loss = loss + torch.where(target <= 1, 0.0, stirling)
    return _reduce(loss, reduction)


@decomposes(aten.hinge_embedding_loss.default)
def hinge_embedding_loss(self: Tensor, target: Tensor, margin: float = 1.0, reduction: int = MEAN) -> Tensor:
    """Returns self where target is not -1, plus max(0, margin - self) where it is not 1, reduced."""
    hinge = torch.where(target != 1, (margin - self).clamp(min=0), 0.0)
    return _reduce(hinge + torch.where(target != -1, self, 0.0), reduction)


@decomposes(aten.margin_ranking_loss.default)
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = MEAN
) -> Tensor:
    """Returns max(0, -target (input1 - input2) + margin), reduced."""
    return _reduce((-target * (input1 - input2) + margin).clamp(min=0), reduction)


@decomposes(aten.cosine_embedding_loss.default)
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = MEAN
) -> Tensor:
    """Returns 1 - cos where target is 1, max(0, cos - margin) where it is -1, and 0 elsewhere, reduced."""
    tiny, axis = 1e-12, target.dim()
    dot = (input1 * input2).sum(axis)
    cosine = dot / torch.sqrt(((input1 * input1).sum(axis) + tiny) * ((input2 * input2).sum(axis) + tiny))
    apart = torch.where(target == -1, (cosine - margin).clamp(min=0), 0.0)
    return _reduce(torch.where(target == 1, 1 - cosine, 0.0) + apart, reduction)


@decomposes(aten.triplet_margin_loss.default)
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = MEAN,
) -> Tensor:
    """Returns max(0, margin + distance to the positive - distance to the negative), reduced."""
    far = F.pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = torch.minimum(far, F.pairwise_distance(positive, negative, p, eps))
    return _reduce((F.pairwise_distance(anchor, positive, p, eps) - far + margin).clamp(min=0), reduction)


@decomposes(aten.multi_margin_loss.default)
def multi_margin_loss(
    self: Tensor,
    target: Tensor,
    p: Number = 1,
    margin: Number = 1,
    weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:
    """Returns (Σ max(0, margin - self[target] + self[i])^p over the other classes i) / number of classes, reduced."""
    self = self.reshape(1) if self.dim() == 0 else self
    target = target.reshape((*self.shape[:-1], 1))
    hinge = (margin - self.gather(-1, target) + self).clamp(min=0)
    loss = hinge if p == 1 else hinge * hinge
    if weight is not None:
        loss = loss * weight.gather(0, target.flatten()).reshape(target.shape)
    others = torch.arange(self.size(-1), device=self.device) != target
    return _reduce(torch.where(others, loss, 0.0).sum(-1) / self.size(-1), reduction)


def _multilabel_margin(self: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Returns the loss over pairs of a target class and another class, and which classes are targets.

    The targets of a row are its entries before the first -1.
    """
    classes = torch.arange(self.size(-1), device=self.device)
    ended = torch.cumsum((target < 0).long(), -1) > 0
    wanted = torch.where(ended, 0, target)
    hot = (wanted.unsqueeze(-1) == classes) & ~ended.unsqueeze(-1)
    is_target = hot.any(-2)
    hinge = (1 - self.gather(-1, wanted).unsqueeze(-1) + self.unsqueeze(-2)).clamp(min=0)
    counted = ~ended.unsqueeze(-1) & ~is_target.unsqueeze(-2)
    loss = torch.where(counted, hinge, 0.0).sum((-2, -1)) / self.size(-1)
    return _reduce(loss, reduction), is_target.to(self.dtype)


@decomposes(aten.multilabel_margin_loss_forward.default)
def multilabel_margin_loss_forward(self: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Returns the loss, and which classes are targets.

    The loss is (Σ max(0, 1 - self[target] + self[i]) over targets and other classes i) / number of classes.
    """
    if self.dim() == 0:
        loss, is_target = _multilabel_margin(self.unsqueeze(0), target.reshape(1), reduction)
        return loss, is_target.reshape(target.shape)
    return _multilabel_margin(self, target, reduction)


@decomposes(aten.multilabel_margin_loss.default)
def multilabel_margin_loss(self: Tensor, target: Tensor, reduction: int = MEAN) -> Tensor:
    """Returns (Σ max(0, 1 - self[target] + self[i]) over targets and other classes i) / number of classes."""
    return multilabel_margin_loss_forward(self, target, reduction)[0]


def _negative_log_likelihood(
    self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Returns -weight[target] * self[target], reduced, and the sum of the weights.

    The loss is 0 where the target is ignored; the mean is weighted.
    """
    axis = 0 if self.dim() == 1 else 1
    kept = target != ignore_index
    index = torch.where(kept, target, 0)
    loss = -self.gather(axis, index.unsqueeze(axis)).squeeze(axis)
    weights = torch.ones_like(loss) if weight is None else weight.gather(0, index.flatten()).reshape(index.shape)
    weights = torch.where(kept, weights, 0.0)
    total = weights.sum()
    loss = torch.where(kept, loss * weights, 0.0)
    if reduction == MEAN:
        return loss.sum() / total, total
    return _reduce(loss, reduction), total if reduction == SUM else torch.zeros_like(total)


@decomposes(aten.nll_loss.default, aten.nll_loss_nd.default, aten.nll_loss2d.default)
def nll_loss(
    self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = MEAN, ignore_index: int = -100
) -> Tensor:
    """Returns -weight[target] * self[target], reduced; self holds log-probabilities, and the mean is weighted."""
    return _negative_log_likelihood(self, target, weight, reduction, ignore_index)[0]


@decomposes(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss_forward(
    self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Returns nll_loss and the sum of the weights."""
    return _negative_log_likelihood(self, target, weight, reduction, ignore_index)


@decomposes(aten.cross_entropy_loss.default)
def cross_entropy_loss(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Returns the nll_loss of the log-softmax, or the cross entropy with target probabilities.

    Label smoothing spreads a part of the target evenly over all classes.
    """
    axis = 0 if self.dim() == 1 else 1
    scores = torch.log_softmax(self, axis)
    weights = None
    if weight is not None:
        weights = weight.reshape(weight.shape + (1,) * (self.dim() - 1 - axis))
    if target.shape == self.shape and target.is_floating_point():
        if label_smoothing > 0:
            target = target * (1 - label_smoothing) + label_smoothing / self.size(axis)
        loss = -(scores * target if weights is None else scores * target * weights).sum(axis)
        return loss.sum() / (self.numel() / self.size(axis)) if reduction == MEAN else _reduce(loss, reduction)
    loss, total = _negative_log_likelihood(scores, target, weight, reduction, ignore_index)
    if label_smoothing == 0:
        return loss
    smooth = -(scores if weights is None else scores * weights).sum(axis)
    smooth = torch.where(target != ignore_index, smooth, 0.0)
    smooth = smooth.sum() / total if reduction == MEAN else _reduce(smooth, reduction)
    return (1 - label_smoothing) * loss + (label_smoothing / self.size(axis)) * smooth


@decomposes("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")
def linear_cross_entropy_of_each(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
) -> Tensor:
    """Returns the cross entropy of each row of a linear layer's output, computed in one chunk."""
    logits = F.linear(input, linear_weight, linear_bias).to(acc_dtype)
    weight = None if weight is None else weight.to(acc_dtype)
    return F.cross_entropy(logits, target, weight, ignore_index=ignore_index, reduction="none").to(input.dtype)


@decomposes("torch_nn::_linear_cross_entropy_batch_chunked")
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
    allow_retain_graph: bool,
    compute_input_grad: bool,
    compute_linear_weight_grad: bool,
    compute_linear_bias_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the cross entropy of a linear layer's output, and the requested gradients, computed in one chunk.

    The gradient of a row's logits is (softmax(logits) - one_hot(target)) * weight[target]. torch supports no label
    smoothing here.
    """
    logits = F.linear(input, linear_weight, linear_bias).to(acc_dtype)
    weight = logits.new_ones(logits.size(1)) if weight is None else weight.to(acc_dtype)
    loss = F.cross_entropy(logits, target, weight, ignore_index=ignore_index, reduction=reduction)
    hits = target.unsqueeze(1) == torch.arange(logits.size(1), device=target.device)
    weights = hits * torch.where(target == ignore_index, 0.0, 1.0).to(acc_dtype).unsqueeze(1) * weight
    logits_gradient = torch.softmax(logits, 1) * weights.sum(1, keepdim=True) - weights
    logits_gradient = (logits_gradient / weights.sum() if reduction == "mean" else logits_gradient).to(input.dtype)
    input_gradient = torch.matmul(logits_gradient, linear_weight) if compute_input_grad else input.new_empty(0, 0)
    weight_gradient = (
        torch.matmul(logits_gradient.transpose(0, 1), input) if compute_linear_weight_grad else input.new_empty(0, 0)
    )
    bias_gradient = logits_gradient.sum(0) if compute_linear_bias_grad else input.new_empty(0)
    return loss.to(input.dtype), input_gradient, weight_gradient, bias_gradient
