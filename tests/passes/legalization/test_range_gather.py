"""A Gather by a range gives torch's rows in ONNX Runtime, also where a bound of the range is negative."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fx_onnx
from fx_onnx.passes.legalization.range_gather import LegalizeRangeIndices
from tests.compare import assert_close
from tests.modules import FunctionModule
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


@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_against_torch(read: Callable[[Tensor], Tensor], opset: int) -> None:
    x, longer = torch.randn(6, 4), torch.randn(9, 4)
    program = fx_onnx.export(FunctionModule(read).eval(), (x,), dynamic_shapes=({0: "n"},), opset_version=opset)
    for each in (x, longer):
        assert_close(program(each), read(each))


def test_positions_stay_a_range() -> None:
    """Positions that count from a size, as a decoder's do, need no other form."""
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
    check(before, LegalizeRangeIndices(), [torch.randn(5, 4), torch.randn(2, 4), torch.tensor(3)], operators)
