"""Pads."""

import logging

import pytest
import torch
import torch.nn.functional as F

import fx_onnx
from fx_onnx.passes.legalization.axes_and_shapes import legalize_pads
from fx_onnx.passes.rewriter import LOGGER_NAME
from tests.compare import assert_close
from tests.passes.checking import check, model


class Padded(torch.nn.Module):
    """Pads with zeros, then pools with padding."""

    def __init__(self, pooling: str, **options: int) -> None:
        super().__init__()
        self.pooling, self.options = getattr(F, pooling), options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Makes all values negative, so that a zero is the maximum of a window."""
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
def test_pads_before_pooling(module: Padded, optimize: bool) -> None:
    """The pooling reads the zeros of the Pad as values."""
    x = torch.randn(2, 3, 6, 7)
    program = fx_onnx.export(module.eval(), (x,), optimize=optimize, verbose=False)
    assert_close(program(x), module(x))


def test_a_pad_gets_axes() -> None:
    """Only a Pad with a pooling as consumer gets axes."""
    text = """g (float[N,2,6,7] x) => (float[N,C,H,W] y, float[N,D,E,F] z)
      <int64[8] p = {0,0,1,0,0,0,2,1}, float one = {1.0}>
      { a = Pad(x, p)\n y = MaxPool<kernel_shape=[3,3]>(a)\n b = Pad(x, p, one)\n z = Sin(b) }"""
    before = model(text)  # the merged form is right for positive values, so the results agree
    check(before, legalize_pads, [torch.rand(2, 2, 6, 7)], ["Pad", "MaxPool", "Pad", "Sin"])
    assert [len(node.inputs) for node in before.graph] == [4, 1, 3, 1]


def test_a_pad_of_unknown_shape_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Without the rank, the list of all axes is unknown."""
    before = model("g (float[N,2,6,7] x, int64[8] p) => (y) { a = Pad(x, p)\n y = MaxPool<kernel_shape=[3,3]>(a) }")
    before.graph.inputs[0].shape = None
    with caplog.at_level(logging.DEBUG, logger=LOGGER_NAME):
        assert not legalize_pads(before).modified
    assert "legalize_pads declines Pad a: the shape of its input is unknown" in caplog.text
