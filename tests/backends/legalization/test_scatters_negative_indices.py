"""Indices that may be negative."""

import numpy as np

from fx_onnx.backends.legalization.scatters import wrapped
from tests.passes.checking import builder


def test_indices_that_are_not_negative_stay() -> None:
    """Constants, results of ArgMax, and the indices of an embedding add no node."""
    f = builder("(float[N,4] x, int64[K] i) => (int64[N,1] y) { y = ArgMax<axis=1>(x) }")
    y, i = f.node.outputs[0], f.editor.model.graph.inputs[1]
    five = f.constant(np.array([5]))
    assert wrapped(f, y, lambda: five) is y
    assert wrapped(f, f.constant([0, 3]), lambda: five).const_value.numpy().tolist() == [0, 3]
    assert wrapped(f, f.constant([0, -3]), lambda: five).const_value.numpy().tolist() == [0, 2]
    assert wrapped(f, i, lambda: five) is not i
