"""Losses."""

import pytest
import torch

import fx_onnx
from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.targets.kernel_support import support
from fx_onnx.targets.known_targets import find_target
from tests.compare import assert_close
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


@pytest.mark.parametrize("dims", [None, {0: "rows"}])
@pytest.mark.parametrize("opset", [18, 20, 23])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_losses_of_tensorrt(reduction: str, dtype: torch.dtype, opset: int, dims: dict[int, str] | None) -> None:
    """The sum of the losses is larger than the largest number of float16, their mean is not."""
    x, targets = torch.randn(2000, 5, dtype=dtype) * 100, torch.randint(0, 5, (2000,))
    x = x / 100 if reduction == "sum" else x
    loss = Loss(reduction)
    program = fx_onnx.export(
        loss, (x, targets), dynamic_shapes=dims and {"x": dims, "targets": dims}, target="tensorrt",
        opset_version=opset, verbose=False,
    )  # fmt: skip
    assert support(program.model, find_target("tensorrt")).missing == ()
    assert_close(program(x, targets), loss(x.float(), targets).to(dtype))


class Loss(torch.nn.Module):
    """The cross-entropy of classes, of which the number 3 is ignored."""

    def __init__(self, reduction: str) -> None:
        super().__init__()
        self.loss = torch.nn.CrossEntropyLoss(ignore_index=3, reduction=reduction)

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """(rows, 5) and (rows) to (rows) or ()."""
        loss: torch.Tensor = self.loss(x, targets)
        return loss
