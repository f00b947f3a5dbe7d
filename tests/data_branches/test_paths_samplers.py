"""One step of the samplers of diffusers and of a forecaster of GluonTS, which branch on data, as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from tests import torchvision_cpu  # noqa: F401  before diffusers, which imports torchvision
from tests.compare import assert_close


class Step(nn.Module):
    """A step of a sampler. The time is an input, by which the sampler chooses the last step."""

    def __init__(self, sampler: Any) -> None:
        super().__init__()
        self.sampler = sampler

    def forward(self, noise: Tensor, time: Tensor, sample: Tensor) -> Tensor:
        result: Tensor = self.sampler.step(noise, time, sample, return_dict=False)[0]
        return result


@pytest.mark.filterwarnings("ignore")
def test_a_step_of_ddim() -> None:
    diffusers = pytest.importorskip("diffusers")
    sampler = diffusers.DDIMScheduler()
    sampler.set_timesteps(4)
    noise, sample = torch.randn(1, 2, 4, 4), torch.randn(1, 2, 4, 4)
    program = fx_onnx.export(Step(sampler).eval(), (noise, sampler.timesteps[0], sample))
    assert [node.op_type for node in program.model.graph].count("If") == 1
    for time in sampler.timesteps:
        assert_close(program(noise, time, sample)[0], Step(sampler)(noise, time, sample))


@pytest.mark.filterwarnings("ignore")
def test_a_likelihood_of_deepar() -> None:
    """Its distributions check their parameters and values."""
    pytest.importorskip("gluonts", reason="GluonTS is not installed")
    from gluonts.torch.model.deepar.module import DeepARModel

    torch.manual_seed(0)
    model = DeepARModel(
        freq="D", context_length=8, prediction_length=3, num_feat_dynamic_real=1, num_feat_static_real=1,
        num_feat_static_cat=1, cardinality=[3], hidden_size=4, num_layers=1, num_parallel_samples=1, lags_seq=[1, 2],
    ).eval()  # fmt: skip

    class LogProbability(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Tensor) -> Any:
            return self.model.log_prob(*inputs)

    def inputs(is_observed: bool) -> tuple[Tensor, ...]:
        past = model._past_length
        observed = torch.ones(2, past) if is_observed else torch.zeros(2, past)
        return (
            torch.randint(0, 3, (2, 1)), torch.randn(2, 1), torch.randn(2, past, 1), torch.rand(2, past) + 1, observed,
            torch.randn(2, 3, 1), torch.rand(2, 3) + 1,
        )  # fmt: skip

    program = fx_onnx.export(LogProbability().eval(), inputs(True))
    for is_observed in (True, False):
        given = inputs(is_observed)
        with torch.no_grad():
            assert_close(program.call_structured(*given), LogProbability()(*given))
