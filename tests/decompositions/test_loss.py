"""Losses, against torch."""

import importlib

import pytest
import torch
from torch import Tensor

from fx_onnx.decompositions.loss import linear_cross_entropy, linear_cross_entropy_of_each
from tests.compare import assert_close
from tests.decompositions.harness import check, random

aten = torch.ops.aten
x, y = random(4, 5), random(4, 5, seed=1)
positive, probability = y.abs() + 0.1, torch.sigmoid(y)
sign = torch.where(x > 0, 1, -1)
reductions = pytest.mark.parametrize("reduction", [0, 1, 2])


@reductions
def test_elementwise(reduction: int) -> None:
    for target in (aten.l1_loss, aten.mse_loss, aten.smooth_l1_loss, aten.huber_loss):
        check(target.default, x, y, reduction)
    check(aten.smooth_l1_loss.default, x, y, reduction, 0.0)
    check(aten.smooth_l1_loss.default, x, y, reduction, 0.3)
    check(aten.huber_loss.default, x, y, reduction, 0.3)
    check(aten.soft_margin_loss.default, x, sign, reduction)
    check(aten.kl_div.default, x, positive, reduction)
    check(aten.kl_div.default, x, torch.zeros(4, 5), reduction)
    check(aten.kl_div.default, x, y, reduction, log_target=True)
    for log_input in (True, False):
        for full in (True, False):
            check(aten.poisson_nll_loss.default, positive, positive * 3, log_input, full, 1e-8, reduction)


@reductions
@pytest.mark.parametrize("weight", [None, random(5, seed=2)])
def test_binary_cross_entropy(reduction: int, weight: Tensor | None) -> None:
    check(aten.binary_cross_entropy.default, probability, torch.sigmoid(x), weight, reduction)
    check(aten.binary_cross_entropy.default, torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]), None, reduction)
    check(aten.binary_cross_entropy_with_logits.default, x, probability, weight, None, reduction)
    check(aten.binary_cross_entropy_with_logits.default, x * 50, probability, weight, positive[0], reduction)


@reductions
def test_margins(reduction: int) -> None:
    check(aten.hinge_embedding_loss.default, x, sign, 0.5, reduction)
    check(aten.margin_ranking_loss.default, x, y, sign, 0.5, reduction)
    check(aten.cosine_embedding_loss.default, x, y, sign[:, 0], 0.2, reduction)
    check(aten.cosine_embedding_loss.default, x[0], y[0], sign[0, 0], 0.2, reduction)
    for swap in (False, True):
        check(aten.triplet_margin_loss.default, x, y, x + 0.1, 1.0, 2.0, 1e-6, swap, reduction)
    classes = torch.tensor([0, 4, 2, 2])
    for p in (1, 2):
        check(aten.multi_margin_loss.default, x, classes, p, 0.7, None, reduction)
        check(aten.multi_margin_loss.default, x, classes, p, 0.7, positive[0], reduction)
    check(aten.multi_margin_loss.default, x[0], classes[1], 1, 1, None, reduction)
    targets = torch.tensor([[0, 4, -1, 1, 1], [-1, 0, 0, 0, 0], [1, 2, 3, 4, 0], [3, -1, -1, -1, -1]])
    check(aten.multilabel_margin_loss_forward.default, x, targets, reduction)
    check(aten.multilabel_margin_loss_forward.default, x[0], targets[0], reduction)


@reductions
@pytest.mark.parametrize("weight", [None, random(5, seed=2).abs()])
@pytest.mark.parametrize("target", [[0, 4, 2, 2], [0, 4, -100, 2], [1, 1, 3, 3]])
def test_classes(reduction: int, weight: Tensor | None, target: list[int]) -> None:
    classes = torch.tensor(target)
    ignored = 3
    check(aten.nll_loss_nd.default, x, classes, weight, reduction)
    check(aten.nll_loss_forward.default, x, classes, weight, reduction, ignored if -100 not in target else -100)
    check(aten.nll_loss_nd.default, x[0], classes[0], weight, reduction)
    image = random(4, 5, 2, 3)
    labels = classes.reshape(4, 1, 1).expand(4, 2, 3)
    check(aten.nll_loss_nd.default, image, labels, weight, reduction)
    for smoothing in (0.0, 0.3):
        check(aten.cross_entropy_loss.default, x, classes, weight, reduction, -100, smoothing)
        check(aten.cross_entropy_loss.default, image, labels, weight, reduction, -100, smoothing)
        check(aten.cross_entropy_loss.default, x[0], classes[0], weight, reduction, -100, smoothing)
        check(aten.cross_entropy_loss.default, x, probability, weight, reduction, -100, smoothing)
        check(aten.cross_entropy_loss.default, image, torch.sigmoid(image), weight, reduction, -100, smoothing)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_linear_cross_entropy(reduction: str, weighted: bool) -> None:
    importlib.import_module("torch.nn.modules.linear_cross_entropy")  # defines the operators
    operators = torch.ops.torch_nn
    weight = torch.rand(3) + 0.5 if weighted else None
    data = (x, random(3, 5, seed=2), torch.tensor([0, 2, 1, 2]), random(3), weight)
    options = (reduction, 1, 0.0, 2, "compact", torch.float32, False, True, True, True)
    assert_close(linear_cross_entropy(*data, *options), operators._linear_cross_entropy_batch_chunked(*data, *options))
    options = (1, 2, "compact", torch.float32)
    want = operators._linear_cross_entropy_batch_chunked_no_reduction(*data, *options)
    assert_close(linear_cross_entropy_of_each(*data, *options), want)
