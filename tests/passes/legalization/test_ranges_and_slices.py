"""Ranges, slices, sorts and distinct elements."""

import logging
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fx_onnx.passes.legalization.ranges_and_slices import legalize_range_indices
from fx_onnx.passes.rewriter import LOGGER_NAME
from tests.compare import assert_close
from tests.modules import FunctionModule
from tests.one_capture import OneCapture
from tests.passes.checking import check, model

WEIGHT = torch.randn(20, 3)

READS: dict[str, Callable[[Tensor], Tensor]] = {
    "reversed": lambda x: x[torch.arange(x.shape[0] - 1, -1, -1)],
    "reversed by two": lambda x: x[torch.arange(x.shape[0] - 1, -1, -2)],
    "from -n to 0": lambda x: x[torch.arange(-x.shape[0], 0)],
    "from -1 to n - 1": lambda x: x[torch.arange(-1, x.shape[0] - 1)],
    "index_select": lambda x: x.index_select(0, torch.arange(x.shape[0] - 1, -1, -1)),
    "embedding": lambda x: F.embedding(torch.arange(x.shape[0] - 1, -1, -1), WEIGHT),
    "take": lambda x: torch.take(x, torch.arange(x.shape[0] - 1, -1, -1)),
    "a constant range": lambda x: x[torch.arange(3, -1, -1)] + x[torch.arange(-4, 0)],
    "a column": lambda x: x[:, torch.arange(x.shape[1] - 1, -1, -1)],
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_gather_by_a_range(read: Callable[[Tensor], Tensor]) -> None:
    """The rows are right for the size of the example and for another size."""
    x, longer = torch.randn(6, 4), torch.randn(9, 4)
    captured = OneCapture(FunctionModule(read).eval(), (x,), dynamic_shapes=({0: "n"},))
    for opset in (18, 23):
        program = captured.export(opset_version=opset)
        for each in (x, longer):
            assert_close(program(each), read(each))


def test_a_range_between_sizes_stays() -> None:
    """A decoder counts its positions from a size, which is not negative. The bound ``n`` may be negative."""
    text = """g (float[N,4] x, float[P,4] past, int64 n) => (float[A,4] y, float[B,4] z)
      { s = Shape<start=0, end=1>(past)\n p = Squeeze(s)\n t = Shape<start=0, end=1>(x)\n q = Squeeze(t)
        one = Constant<value_int=1>()\n r = Range(p, q, one)\n y = Gather<axis=0>(x, r)
        u = Range(n, q, one)\n z = Gather<axis=0>(x, u) }"""
    before = model(text)
    operators = [
        "Shape",
        "Squeeze",
        "Shape",
        "Squeeze",
        "Constant",
        "Range",
        "Gather",
        "Sub",
        "Neg",
        "Range",
        "Sub",
        "Gather",
    ]
    check(before, legalize_range_indices, [torch.randn(5, 4), torch.randn(2, 4), torch.tensor(3)], operators)


def test_a_range_with_two_consumers_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """ONNX Runtime fuses a Range only into its one consumer."""
    text = """g (float[N,4] x, int64 a, int64 b, int64 d) => (float[A,4] y, int64[B] z)
      { r = Range(a, b, d)\n y = Gather<axis=0>(x, r)\n z = Neg(r) }"""
    with caplog.at_level(logging.DEBUG, logger=LOGGER_NAME):
        assert not legalize_range_indices(model(text)).modified
    assert "legalize_range_indices declines Range r: it has several consumers" in caplog.text
