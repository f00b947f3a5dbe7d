"""A module and its program take the same steps in the modes of their runs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fx_onnx.capture.proof.run_modes import ComparedSizes, IndexByTensor, OnMeta

X = torch.arange(24.0).reshape(2, 3, 4)
PLACE = torch.tensor(1)


@pytest.mark.parametrize(
    "index", [PLACE, (PLACE,), (0, PLACE), (PLACE, slice(1, 3)), (slice(None), PLACE), (None, PLACE, 2), (PLACE, PLACE)]
)
def test_a_0d_index_selects_as_python_does(index: Tensor | tuple[Tensor, ...]) -> None:
    with IndexByTensor():
        found = X[index]
        written = X.clone()
        written[index] = 7.0 * torch.ones(())
    expected = X.clone()
    expected[index] = 7.0
    assert torch.equal(found, X[index])
    assert torch.equal(written, expected)


def test_the_device_is_that_of_the_example() -> None:
    with OnMeta(torch.device("cpu")):
        tensor = torch.empty(2, device="meta")
        assert (tensor.device, tensor.is_cpu, tensor.is_meta) == (torch.device("cpu"), True, False)


def test_the_numbers_that_sizes_are_compared_with_are_kept() -> None:
    x = torch.ones(3, 4)
    with ComparedSizes() as mode:
        assert x.shape == (3, 4)
        assert x.size(0) in (2, 3)
        assert x.mT.shape[0] != 9
        assert torch.zeros(x.shape).reshape(x.shape[1], -1).shape == torch.Size([4, 3])
    assert mode.numbers >= {2, 3, 4, 9}
