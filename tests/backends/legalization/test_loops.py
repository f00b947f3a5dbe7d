"""Loops."""

import torch

from fx_onnx.backends.ladder import OpsetStep
from tests.passes.checking import check_equal, model


def test_a_loop_carries_a_value() -> None:
    text = """(int64 n) => (int64[N] y) {
      c = Constant<value = bool {1}>()
      y = Loop(n, c) <body = b (int64 i, bool before) => (bool after, int64 k) {
        after = Identity(before)\n k = Mul(i, i)
      }>
    }"""
    check_equal(model(f"g {text}", opset=11), OpsetStep(10), [torch.tensor(4)])
