"""Less as Greater."""

import torch

from fx_onnx.passes.legalization.less_as_greater import LegalizeLess
from tests.passes.checking import check, model

X = torch.tensor([[-3.0, -1.0, float("nan")], [0.0, 2.0, float("-inf")]])


def test_floats() -> None:
    text = "g (float[M,N] x) => (bool[M,N] y) <float c = {-1.0}> { y = Less(x, c) }"
    check(model(text), LegalizeLess(), [X], ["Greater"])


def test_integers_stay() -> None:
    text = "g (int64[M,N] x) => (bool[M,N] y) <int64 c = {-1}> { y = Less(x, c) }"
    check(model(text), LegalizeLess(), [torch.tensor([[-3, -1, 0]])], ["Less"])
