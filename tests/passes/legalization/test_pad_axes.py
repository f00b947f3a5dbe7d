"""A Pad before a pooling stays one in ONNX Runtime: against torch, whose zeros count."""

import pytest
import torch
import torch.nn.functional as F

import fx_onnx
from fx_onnx.passes.legalization.pad_axes import LegalizePads
from tests.compare import assert_close
from tests.passes.checking import check, model


class Padded(torch.nn.Module):
    """Zeros around the image, then a pooling with some of its own."""

    def __init__(self, pooling: str, **options: int) -> None:
        super().__init__()
        self.pooling, self.options = getattr(F, pooling), options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All values are negative, so that a zero is the largest of a window."""
        return self.pooling(F.pad(-x.abs() - 1, (1, 2, 2, 1)), 3, **self.options)


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize(
    "module",
    [
        Padded("max_pool2d"),
        Padded("max_pool2d", stride=2, ceil_mode=True),
        Padded("max_pool2d", padding=1),
        Padded("avg_pool2d", padding=1),
        Padded("avg_pool2d", stride=2, ceil_mode=True),
    ],
)
def test_against_torch(module: Padded, optimize: bool) -> None:
    """The zeros are values of the pooling."""
    x = torch.randn(2, 3, 6, 7)
    program = fx_onnx.export(module.eval(), (x,), optimize=optimize, verbose=False)
    assert_close(program(x), module(x))


def test_axes() -> None:
    """Only the Pad that a pooling reads is changed."""
    text = """g (float[N,2,6,7] x) => (float[N,C,H,W] y, float[N,D,E,F] z)
      <int64[8] p = {0,0,1,0,0,0,2,1}, float one = {1.0}>
      { a = Pad(x, p)\n y = MaxPool<kernel_shape=[3,3]>(a)\n b = Pad(x, p, one)\n z = Sin(b) }"""
    before = model(text)  # what ONNX Runtime makes of it is right for positive values
    check(before, LegalizePads(), [torch.rand(2, 2, 6, 7)], ["Pad", "MaxPool", "Pad", "Sin"])
    assert [len(node.inputs) for node in before.graph] == [4, 1, 3, 1]
