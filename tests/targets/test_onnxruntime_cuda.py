"""The target onnxruntime-cuda, which is compared with tables only."""

import torch

from tests.targets.exporting import exported, padded_maximum


def test_its_opset_has_the_kernels_that_newer_ones_lack() -> None:
    assert (
        exported(padded_maximum, torch.ones(2, 3), target="onnxruntime-cuda").supports("onnxruntime-cuda").missing == ()
    )
    assert exported(padded_maximum, torch.ones(2, 3)).supports("onnxruntime-cuda").missing
