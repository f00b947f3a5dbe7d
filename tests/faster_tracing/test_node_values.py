"""The values in the metadata of nodes."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import proxy_tensor
from torch.fx.passes.shape_prop import _extract_tensor_metadata

from fx_onnx.faster_tracing.exact_replacements import faster_tracing
from fx_onnx.faster_tracing.node_values import _make_tensor_metadata

SIZES = [shape for ndim in (0, 1, 2, 3) for shape in product((0, 1, 2, 3), repeat=ndim)]
SIZES += list(product((0, 1, 2), repeat=4)) + list(product((1, 2), repeat=5))


def test_contiguity_is_that_of_torch() -> None:
    """All orders of axes, and strides of which some are 0 or have gaps."""
    (metadata,) = _make_tensor_metadata(_extract_tensor_metadata)
    with FakeTensorMode():
        for shape in SIZES:
            whole = torch.empty(shape)
            permuted = [whole.transpose(0, 1), whole.movedim(1, -1), whole.movedim(-1, 1)] if len(shape) > 1 else []
            spaced = [torch.empty(*shape, 2)[..., 0], torch.empty(shape[:1]).reshape(-1, *[1] * (len(shape) - 1))]
            expanded = [torch.empty([1] * len(shape)).expand(shape)]
            for tensor in (whole, *permuted, *(spaced if shape else ()), *expanded):
                assert metadata(tensor) == _extract_tensor_metadata(tensor), (tensor.shape, tensor.stride())


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, torch.bool])
def test_other_facts_are_those_of_torch(dtype: torch.dtype) -> None:
    (metadata,) = _make_tensor_metadata(_extract_tensor_metadata)
    with FakeTensorMode():
        tensor = torch.empty(2, 3, dtype=dtype)
        assert metadata(tensor, False) == _extract_tensor_metadata(tensor, False)
        assert metadata(tensor) == _extract_tensor_metadata(tensor)


class Counts(nn.Module):
    """Returns what torch has counted, and many weights of few kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(3, 3, bias=index % 2 == 0) for index in range(9)))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, int], str]:
        """(n, 3) to (n, 3)."""
        tracer = proxy_tensor.get_proxy_mode().tracer  # type: ignore[union-attr]
        return self.layers(x), {str(key): count for key, count in tracer.torch_fn_counts.items()}, str(x.shape)


def test_torch_counts_the_same_calls() -> None:
    found: list[dict[str, int]] = []
    module = Counts()
    module.register_forward_hook(lambda module, args, output: found.append(output[1]) or output[0])
    torch.export.export(module, (torch.ones(2, 3),))
    with faster_tracing():
        torch.export.export(module, (torch.ones(2, 3),))
    assert found[0] == found[1] and sum(found[0].values()) > 100
