"""Pads."""

import onnx_ir as ir
import onnxruntime
import pytest
import torch

from fx_onnx.backends.ladder import OpsetStep
from tests.passes.checking import check, check_equal, model

X = torch.randn(2, 3, 4)


@pytest.mark.parametrize("pads", [[1, 2, 0, 3], [-1, 2, 3, -2], [0, 0, -1, 0], [-1, -1, -1, -2]])
def test_pads_of_the_run(pads: list[int]) -> None:
    """All amounts from one tensor, and one amount between constants."""
    text = "(float[A,B] x, int64[4] p) => (float[C,D] y) <float v = {2.5}> { y = Pad(x, p, v) }"
    check_equal(model(f"g {text}", opset=11), OpsetStep(10), [X[0], torch.tensor(pads)])
    text = """(float[A,B] x, int64[1] n) => (float[C,D] y) <int64[3] k = {0,2,1}> {
      p = Concat<axis=0>(k, n)\n y = Pad(x, p)
    }"""
    check_equal(model(f"g {text}", opset=11), OpsetStep(10), [X[0], torch.tensor(pads[-1:])])


def test_a_pad_before_a_pooling_is_not_merged_into_it() -> None:
    """ONNX Runtime's optimizer would compute the maximum without the zeros of the Pad."""
    program = model(
        """g (float[1,1,4,4] x) => (float[1,1,H,W] y) <int64[8] p = {0,0,1,1,0,0,1,1}, float v = {0.0},
        int64[4] a = {0,1,2,3}> { q = Pad(x, p, v, a)\n y = MaxPool<kernel_shape=[3,3]>(q) }""",
        opset=18,
    )
    x = -torch.rand(1, 1, 4, 4) - 1
    check(program, OpsetStep(17), [x], ["Unsqueeze", "Pad", "Squeeze", "MaxPool"])
    session = onnxruntime.InferenceSession(ir.serde.serialize_model(program).SerializeToString())
    (got,) = session.run(None, {"x": x.numpy()})
    want = torch.nn.functional.max_pool2d(torch.nn.functional.pad(x, (1, 1, 1, 1)), 3, 1)
    assert torch.from_numpy(got).equal(want)
