"""Mish by Softplus and Tanh."""

import torch

from fx_onnx.passes.legalization.mish import LegalizeMish
from tests.passes.checking import check, model


def test_mish() -> None:
    x = torch.tensor([-30.0, -1.0, 0.0, 2.0, 90.0])
    check(model("g (float[N] x) => (float[N] y) { y = Mish(x) }"), LegalizeMish(), [x], ["Softplus", "Tanh", "Mul"])
