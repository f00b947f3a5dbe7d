"""The target tensorrt, which is compared with published facts only."""

import torch

from fx_onnx.targets.kernel_support import support
from fx_onnx.targets.known_targets import find_target
from tests.passes.checking import model
from tests.targets.exporting import exported


def test_boolean_masks_are_read_without_compress() -> None:
    target = find_target("tensorrt")
    text = "g (float[N] x, bool[N] c) => (float[M] y) { y = Compress(x, c) }"
    assert [each.operator for each in support(model(text), target).missing] == ["Compress"]
    assert exported(lambda x: x[x > 0], torch.ones(2, 3), target="tensorrt").supports(target).missing == ()
