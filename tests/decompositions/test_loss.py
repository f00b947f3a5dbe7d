"""Decompositions of losses against torch."""

import importlib

import pytest
import torch
from torch import Tensor

from fx_onnx.decompositions.loss import linear_cross_entropy, linear_cross_entropy_of_each
from tests.compare import assert_close
from tests.decompositions.harness import assert_matches_torch, randn
from tests.torch_versions import needs

aten = torch.ops.aten
x, y = randn(4, 5), randn(4, 5, seed=1)
positive, probability = y.abs() + 0.1, torch.sigmoid(y)
sign = torch.where(x > 0, 1, -1)
reductions = pytest.mark.parametrize("reduction", [0, 1, 2])


@reductions
def test_elementwise(reduction: int) -> None:
    for target in (aten.l1_loss, aten.mse_loss, aten.smooth_l1_loss, aten.huber_loss):
        assert_matches_torch(target.default, x, y, reduction)
    assert_matches_torch(aten.smooth_l1_loss.default, x, y, reduction, 0.0)
    assert_matches_torch(aten.smooth_l1_loss.default, x, y, reduction, 0.3)
    assert_matches_torch(aten.huber_loss.default, x, y, reduction, 0.3)
    assert_matches_torch(aten.soft_margin_loss.default, x, sign, reduction)
    assert_matches_torch(aten.kl_div.default, x, positive, reduction)
    assert_matches_torch(aten.kl_div.default, x, torch.zeros(4, 5), reduction)
    assert_matches_torch(aten.kl_div.default, x, y, reduction, log_target=True)
    for log_input in (True, False):
        for full in (True, False):
            assert_matches_torch(
                aten.poisson_nll_loss.default, positive, positive * 3, log_input, full, 1e-8, reduction
            )


@reductions
@pytest.mark.parametrize("weight", [None, randn(5, seed=2)])
def test_binary_cross_entropy(reduction: int, weight: Tensor | None) -> None:
    assert_matches_torch(aten.binary_cross_entropy.default, probability, torch.sigmoid(x), weight, reduction)
    assert_matches_torch(
        aten.binary_cross_entropy.default, torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]), None, reduction
    )
    assert_matches_torch(aten.binary_cross_entropy_with_logits.default, x, probability, weight, None, reduction)
    assert_matches_torch(
        aten.binary_cross_entropy_with_logits.default, x * 50, probability, weight, positive[0], reduction
    )


@reductions
def test_margins(reduction: int) -> None:
    assert_matches_torch(aten.hinge_embedding_loss.default, x, sign, 0.5, reduction)
    assert_matches_torch(aten.margin_ranking_loss.default, x, y, sign, 0.5, reduction)
    assert_matches_torch(aten.cosine_embedding_loss.default, x, y, sign[:, 0], 0.2, reduction)
    assert_matches_torch(aten.cosine_embedding_loss.default, x[0], y[0], sign[0, 0], 0.2, reduction)
    for swap in (False, True):
        assert_matches_torch(aten.triplet_margin_loss.default, x, y, x + 0.1, 1.0, 2.0, 1e-6, swap, reduction)
    classes = torch.tensor([0, 4, 2, 2])
    for p in (1, 2):
        assert_matches_torch(aten.multi_margin_loss.default, x, classes, p, 0.7, None, reduction)
        assert_matches_torch(aten.multi_margin_loss.default, x, classes, p, 0.7, positive[0], reduction)
    assert_matches_torch(aten.multi_margin_loss.default, x[0], classes[1], 1, 1, None, reduction)
    targets = torch.tensor([[0, 4, -1, 1, 1], [-1, 0, 0, 0, 0], [1, 2, 3, 4, 0], [3, -1, -1, -1, -1]])
    assert_matches_torch(aten.multilabel_margin_loss_forward.default, x, targets, reduction)
    assert_matches_torch(aten.multilabel_margin_loss_forward.default, x[0], targets[0], reduction)


@reductions
@pytest.mark.parametrize("weight", [None, randn(5, seed=2).abs()])
@pytest.mark.parametrize("target", [[0, 4, 2, 2], [0, 4, -100, 2], [1, 1, 3, 3]])
def test_classes(reduction: int, weight: Tensor | None, target: list[int]) -> None:
    classes = torch.tensor(target)
    ignored = 3
    assert_matches_torch(aten.nll_loss_nd.default, x, classes, weight, reduction)
    assert_matches_torch(
        aten.nll_loss_forward.default, x, classes, weight, reduction, ignored if -100 not in target else -100
    )
    assert_matches_torch(aten.nll_loss_nd.default, x[0], classes[0], weight, reduction)
    image = randn(4, 5, 2, 3)
    labels = classes.reshape(4, 1, 1).expand(4, 2, 3)
    assert_matches_torch(aten.nll_loss_nd.default, image, labels, weight, reduction)
    for smoothing in (0.0, 0.3):
        assert_matches_torch(aten.cross_entropy_loss.default, x, classes, weight, reduction, -100, smoothing)
        assert_matches_torch(aten.cross_entropy_loss.default, image, labels, weight, reduction, -100, smoothing)
        assert_matches_torch(aten.cross_entropy_loss.default, x[0], classes[0], weight, reduction, -100, smoothing)
        assert_matches_torch(aten.cross_entropy_loss.default, x, probability, weight, reduction, -100, smoothing)
        assert_matches_torch(
            aten.cross_entropy_loss.default, image, torch.sigmoid(image), weight, reduction, -100, smoothing
        )


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@needs("linear_cross_entropy")
def test_linear_cross_entropy(reduction: str, weighted: bool) -> None:
    importlib.import_module("torch.nn.modules.linear_cross_entropy")  # declares the operators
    operators = torch.ops.torch_nn
    weight = torch.rand(3) + 0.5 if weighted else None
    data = (x, randn(3, 5, seed=2), torch.tensor([0, 2, 1, 2]), randn(3), weight)
    options = (reduction, 1, 0.0, 2, "compact", torch.float32, False, True, True, True)
    assert_close(linear_cross_entropy(*data, *options), operators._linear_cross_entropy_batch_chunked(*data, *options))
    options = (1, 2, "compact", torch.float32)
    want = operators._linear_cross_entropy_batch_chunked_no_reduction(*data, *options)
    assert_close(linear_cross_entropy_of_each(*data, *options), want)
