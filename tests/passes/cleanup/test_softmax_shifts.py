"""Elimination of a shift by the largest element before Softmax."""

import pytest
import torch

from fx_onnx.passes.cleanup.softmax_shifts import EliminateSoftmaxShifts
from tests.passes.checking import check, model


def shifted(text: str, opset: int = 20) -> object:
    return model(f"g (float[N,3,4] x) => (float[N,3,4] y) <int64[1] last = {{2}}, int64[1] rows = {{-2}}> {{ {text} }}",
                 opset=opset)  # fmt: skip


@pytest.mark.parametrize(("axes", "axis"), [("last", -1), ("last", 2), ("rows", 1)])
def test_the_shift_is_removed(axes: str, axis: int) -> None:
    program = shifted(f"m = ReduceMax(x, {axes})\n s = Sub(x, m)\n y = Softmax<axis={axis}>(s)")
    check(program, EliminateSoftmaxShifts(), [100 * torch.randn(2, 3, 4)], ["Softmax"], tolerance=0)


@pytest.mark.parametrize(
    "text",
    [
        "m = ReduceMax(x, rows)\n s = Sub(x, m)\n y = Softmax<axis=2>(s)",
        "m = ReduceMax(x)\n s = Sub(x, m)\n y = Softmax<axis=2>(s)",
        "n = Neg(x)\n m = ReduceMax(n, last)\n s = Sub(x, m)\n y = Softmax<axis=2>(s)",
        "m = ReduceMin(x, last)\n s = Sub(x, m)\n y = Softmax<axis=2>(s)",
        "m = ReduceMax(x, last)\n s = Sub(x, m)\n z = Softmax<axis=2>(s)\n y = Add(z, s)",
    ],
    ids=["other axis", "all axes", "another value", "minimum", "another consumer"],
)
def test_declined(text: str) -> None:
    assert not EliminateSoftmaxShifts()(shifted(text)).modified
