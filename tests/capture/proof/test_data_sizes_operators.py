"""Operators on rows that data select: torch asks whether there are any, and whether there is one."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fx_onnx
from tests.compare import assert_close
from tests.modules import FunctionModule

WEIGHT = torch.linspace(-1, 1, 24).reshape(4, 6)
CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "logsumexp": lambda s: s.logsumexp(1),
    "logcumsumexp": lambda s: s.logcumsumexp(0),
    "cosine_similarity": lambda s: F.cosine_similarity(s[:, None, 0], torch.ones(3, 4)[None], dim=-1),
    "cdist": lambda s: torch.cdist(s[:, 0], torch.ones(3, 4)),
    "roll": lambda s: s.roll((1, 2), (0, 1)),
    "fftshift": lambda s: torch.fft.fftshift(s, dim=1),
    "hfft": lambda s: torch.fft.hfft(s),
    "cummax": lambda s: s.cummax(0)[0],
    "cummin": lambda s: s.cummin(1)[1],
    "tensordot": lambda s: torch.tensordot(s, s, dims=([1, 2], [1, 2])),
    "local_response_norm": lambda s: F.local_response_norm(s, 3),
    "channel_shuffle": lambda s: F.channel_shuffle(s[:, :, None], 2),
    "pixel_shuffle": lambda s: F.pixel_shuffle(s[:, :4, None], 2),
    "bilinear": lambda s: F.bilinear(s, s, torch.ones(2, 4, 4)),
    "kron": lambda s: torch.kron(torch.eye(2), s[:, 0]),
    "multi_dot": lambda s: torch.linalg.multi_dot([s[:, 0], WEIGHT, WEIGHT.T]),
    "gradient": lambda s: torch.stack(torch.gradient(s, dim=(1, 2))),
    "histc": lambda s: torch.histc(s, 4, -1, 1),
    "combinations": lambda s: torch.combinations(s[:, 0, 0]),
    "renorm": lambda s: s.renorm(2, 1, 1.0),
    "group_norm": lambda s: F.group_norm(s, 3),
    "group_norm_2d": lambda s: F.group_norm(s[:, :, 0], 3),
    "instance_norm": lambda s: F.instance_norm(s),
    "diff": lambda s: s.diff(dim=0),
    "unfold": lambda s: F.unfold(s[:, None], 2),
}


@pytest.mark.parametrize(
    ("name", "opset"), [*((name, 18) for name in CASES), ("group_norm", 21), ("group_norm_2d", 23)]
)
def test_rows_that_data_select(name: str, opset: int) -> None:
    model, generator = FunctionModule(lambda x, mask: CASES[name](x[mask])), torch.Generator().manual_seed(0)
    masks = [torch.arange(5) % 2 == 0, torch.arange(5) == 2, torch.arange(5) > 2]
    x = torch.randn(5, 6, 4, generator=generator)
    program = fx_onnx.export(model, (x, masks[0]), opset_version=opset)
    assert not program.findings
    for mask in masks:
        assert_close(program(x, mask)[0], model(x, mask), 1e-3)
