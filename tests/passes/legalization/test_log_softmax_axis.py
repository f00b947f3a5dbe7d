"""The axis of LogSoftmax."""

import torch

from fx_onnx.passes.legalization.log_softmax_axis import LegalizeLogSoftmax
from tests.passes.checking import check, model


def test_the_default_is_written() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    changed = model("g (float[M,N] x) => (float[M,N] y) { y = LogSoftmax(x) }")
    check(changed, LegalizeLogSoftmax(), [x], ["LogSoftmax"])
    assert changed.graph.node(0).attributes["axis"].as_int() == -1


def test_another_axis_stays() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    changed = model("g (float[M,N] x) => (float[M,N] y) { y = LogSoftmax<axis=0>(x) }")
    check(changed, LegalizeLogSoftmax(), [x], ["LogSoftmax"])
    assert changed.graph.node(0).attributes["axis"].as_int() == 0
