"""Losses."""

import pytest
import torch

from fx_onnx.backends.ladder import OpsetStep
from tests.passes.checking import check_equal, model

LOSS = "(float[N,5,D] x, int64[N,D] t, float[5] w) => (float%s y) { y = %s<%s>(x, t%s) }"


@pytest.mark.parametrize("weight", ["", ", w"])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("operator", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_losses(operator: str, reduction: str, weight: str) -> None:
    """With weights of the classes, and targets that are ignored."""
    x, targets, weights = torch.randn(3, 5, 4), torch.randint(0, 5, (3, 4)), torch.rand(5)
    shape = "[N,D]" if reduction == "none" else ""
    for ignored in ("", ", ignore_index=2", ", ignore_index=-100"):
        text = LOSS % (shape, operator, f'reduction="{reduction}"{ignored}', weight)
        with_ignored = targets.clone()
        with_ignored[0, 0] = -100 if "100" in ignored else 1
        check_equal(model(f"g {text}", opset=12), OpsetStep(11), [x, with_ignored, weights])


def test_the_logarithms_of_a_loss() -> None:
    text = "(float[N,5] x, int64[N] t) => (float y, float[N,5] z) { y, z = SoftmaxCrossEntropyLoss(x, t) }"
    check_equal(model(f"g {text}", opset=12), OpsetStep(11), [torch.randn(3, 5), torch.tensor([0, 4, 2])])
