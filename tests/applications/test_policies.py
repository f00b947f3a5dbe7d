"""Tests of the part of a policy, with lerobot where it is installed."""

from __future__ import annotations

import itertools
import json
import sys
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.applications.policies import robot_policy
from fx_onnx.messages.errors import ArgumentError, VerificationError
from tests.models import robot_policies


class _Normalizer:
    def _normalize_observation(self, batch: dict[str, Tensor], inverse: bool) -> dict[str, Tensor]:
        return {name: value - 3 for name, value in batch.items()}

    def _normalize_action(self, action: Tensor, inverse: bool) -> Tensor:
        return action * 2


class _Policy(nn.Module):
    """Has the interface of a policy of lerobot, with two observations in a row."""

    def __init__(self, draws: int = 1) -> None:
        super().__init__()
        self.linear, self.draws = nn.Linear(12, 20), draws
        features = {"observation.state": SimpleNamespace(shape=(6,))}
        self.config = SimpleNamespace(type="linear", n_obs_steps=2, n_action_steps=3, input_features=features)
        self.normalizers: Any = (_Normalizer(), _Normalizer())

    def reset(self) -> None:
        self._queues = {"observation.state": deque(maxlen=2)}

    def predict_action_chunk(self, batch: dict[str, Tensor], noise: Tensor | None = None) -> Tensor:
        state = self.linear(batch["observation.state"].flatten(1)).unflatten(1, (5, 4))
        drawn = [torch.randn(state.shape) for _ in range(self.draws - (noise is not None))]
        return state + sum(drawn) + (0 if noise is None else noise)


def test_a_policy_is_one_program_with_its_normalization(tmp_path: Path) -> None:
    policy = _Policy()
    fx_onnx.export_pretrained(policy, tmp_path / "out", task="robot-policy")
    session = onnxruntime.InferenceSession(tmp_path / "out/model.onnx")
    shapes = {value.name: value.shape for value in session.get_inputs()}
    assert shapes == {"observation.state": ["batch", 2, 6], "noise": ["batch", 5, 4]}
    told = json.loads(session.get_modelmeta().custom_metadata_map["policy"])
    assert told == {"type": "linear", "n_obs_steps": 2, "n_action_steps": 3, "normalized": True}
    state, noise = torch.randn(3, 2, 6), torch.randn(3, 5, 4)
    (action,) = session.run(["action"], {"observation.state": state.numpy(), "noise": noise.numpy()})
    want = policy.predict_action_chunk({"observation.state": state - 3}, noise) * 2
    torch.testing.assert_close(torch.from_numpy(action), want)


def test_a_policy_without_processors_is_told(tmp_path: Path) -> None:
    policy = _Policy()
    policy.normalizers = None
    with pytest.warns(UserWarning, match="its observations and actions are not normalized: give a folder"):
        fx_onnx.export_pretrained(policy, tmp_path / "out", task="robot-policy")


def test_other_modules_and_repeated_noise_are_refused() -> None:
    with pytest.raises(ArgumentError, match="Linear is no policy of lerobot that predicts a chunk of actions"):
        robot_policy(nn.Linear(1, 1), (), {})
    with pytest.raises(ArgumentError, match="_Policy draws noise 3 times, and its predict_action_chunk takes one"):
        robot_policy(_Policy(3), (), {})


class _Flow(_Policy):
    """Integrates a velocity that closes over tensors of the observation.

    Each step writes to the config, as pi0 of lerobot does, and extends a cache that it then crops, as SmolVLA does.
    """

    def predict_action_chunk(self, batch: dict[str, Tensor], noise: Tensor | None = None, steps: int = 3) -> Tensor:
        prefix = self.linear(batch["observation.state"].flatten(1)).unflatten(1, (5, 4))
        cache = [prefix]

        def velocity(sample: Tensor, time: Tensor) -> Tensor:
            self.config.attention = "eager"
            cache[0] = torch.cat([cache[0], self.linear(sample.repeat(1, 3, 1).flatten(1)[:, :12])[:, None, :4]], 1)
            mean = cache[0].mean(1, keepdim=True)
            cache[0] = cache[0][:, :5]
            return (sample - prefix + mean).sin() * time[:, None, None]

        noise = torch.randn(prefix.shape) if noise is None else noise
        return sys.modules[type(self).__module__].euler_integrate(velocity, noise, steps)[..., :3]


def _integrate(velocity: Any, noise: Tensor, steps: int) -> Tensor:
    for step in range(steps):
        noise = noise - velocity(noise, torch.tensor(1 - step / steps).expand(noise.shape[0])) / steps
    return noise


@pytest.fixture
def flow(monkeypatch: Any) -> _Flow:
    """Returns a policy whose module has the function that integrates."""
    monkeypatch.setattr(_Flow, "__module__", "flow")
    monkeypatch.setitem(sys.modules, "flow", SimpleNamespace(euler_integrate=_integrate))
    return _Flow()


@torch.no_grad()
def test_the_number_of_steps_is_an_input(flow: _Flow, tmp_path: Path) -> None:
    fx_onnx.export_pretrained(flow, tmp_path / "out", task="robot-policy")
    load = onnxruntime.InferenceSession
    whole, before, step = (load(tmp_path / f"out/{name}.onnx") for name in ("model", "policy_prefix", "policy_step"))
    told = json.loads(whole.get_modelmeta().custom_metadata_map["policy"])
    assert told["num_steps"] == 3
    for batch, steps in itertools.product((1, 3), (0, 1, 4, 9)):
        state, noise = torch.randn(batch, 2, 6), torch.randn(batch, 5, 4)
        observation = {"observation.state": state.numpy()}
        want = flow.predict_action_chunk({"observation.state": state - 3}, noise, steps) * 2
        feeds = {**observation, "noise": noise.numpy(), "num_steps": np.asarray(steps)}
        torch.testing.assert_close(torch.from_numpy(whole.run(None, feeds)[0]), want)
        prefix = dict(zip([value.name for value in before.get_outputs()], before.run(None, observation), strict=True))
        sample, size = noise.numpy(), np.asarray(-1 / max(steps, 1), np.float32)
        for number in range(steps):
            time = np.asarray(1 - number / steps, np.float32)
            sample, action = step.run(None, {"sample": sample, "time": time, "step_size": size, **prefix})
        if steps:
            torch.testing.assert_close(torch.from_numpy(action), want)


@torch.no_grad()
def test_all_steps_are_one_loop(flow: _Flow, tmp_path: Path) -> None:
    fx_onnx.export_pretrained(flow, tmp_path / "out", task="robot-policy")
    graph = onnx.load(tmp_path / "out/model.onnx").graph
    assert [node.op_type for node in graph.node].count("Loop") == 1
    assert sum(node.op_type == "Sin" for node in graph.node) == 0


@torch.no_grad()
def test_other_integrations_are_refused(flow: _Flow, tmp_path: Path, monkeypatch: Any) -> None:
    twice = lambda velocity, noise, steps: _integrate(velocity, _integrate(velocity, noise, steps), steps)  # noqa: E731
    monkeypatch.setattr(sys.modules["flow"], "euler_integrate", twice)
    with pytest.raises(VerificationError, match="action"):
        fx_onnx.export_pretrained(flow, tmp_path / "out", task="robot-policy")


_SIZES: dict[str, dict[str, Any]] = {
    "act": {
        "chunk_size": 8,
        "n_action_steps": 8,
        "dim_model": 16,
        "n_heads": 2,
        "dim_feedforward": 16,
        "latent_dim": 4,
        "n_encoder_layers": 1,
        "n_vae_encoder_layers": 1,
    },
    "diffusion": {
        "crop_shape": None,
        "down_dims": (8, 16),
        "n_groups": 4,
        "diffusion_step_embed_dim": 8,
        "horizon": 8,
        "spatial_softmax_num_keypoints": 4,
        "noise_scheduler_type": "DDIM",
        "num_train_timesteps": 20,
        "num_inference_steps": 2,
        "n_action_steps": 4,
    },
}


def _save(kind: str, folder: Path) -> tuple[Any, Any, Any]:
    """Returns a policy of lerobot and its processors, and writes them."""
    factory = pytest.importorskip("lerobot.policies.factory", reason="lerobot is not installed")
    from lerobot.configs.types import FeatureType, PolicyFeature

    features = {
        "observation.state": PolicyFeature(type=FeatureType.STATE, shape=(6,)),
        "observation.images.top": PolicyFeature(type=FeatureType.VISUAL, shape=(3, 64, 64)),
    }
    output = {"action": PolicyFeature(type=FeatureType.ACTION, shape=(4,))}
    config = factory.make_policy_config(
        kind,
        input_features=features,
        output_features=output,
        pretrained_backbone_weights=None,
        device="cpu",
        **_SIZES[kind],
    )
    policy = factory.get_policy_class(kind)(config).eval()
    shapes = {
        name: feature.shape if len(feature.shape) == 1 else (3, 1, 1)
        for name, feature in {**features, **output}.items()
    }
    stats = {
        name: {
            "mean": torch.randn(shape),
            "std": torch.rand(shape) + 0.5,
            "min": -torch.ones(shape),
            "max": torch.rand(shape) + 1,
        }
        for name, shape in shapes.items()
    }
    processors = factory.make_pre_post_processors(config, dataset_stats=stats)
    for part in (policy, *processors):
        part.save_pretrained(folder)
    return policy, *processors


@pytest.mark.parametrize("kind", _SIZES)
@torch.no_grad()
def test_the_actions_equal_those_of_lerobot(kind: str, tmp_path: Path) -> None:
    policy, before, after = _save(kind, tmp_path / "source")
    fx_onnx.export_pretrained(tmp_path / "source", tmp_path / "out", task="robot-policy")
    session = onnxruntime.InferenceSession(tmp_path / "out/model.onnx")
    steps = [2] if kind == "diffusion" else []
    observation = {
        "observation.state": torch.randn(1, *steps, 6),
        "observation.images.top": torch.rand(1, *steps, 3, 64, 64),
    }
    noise = {value.name: torch.randn(1, *value.shape[1:]) for value in session.get_inputs() if value.name == "noise"}
    assert len(noise) == (kind == "diffusion")
    batch = {name: value for name, value in before(dict(observation)).items() if name in observation}
    want = after(policy.predict_action_chunk(batch, **noise))
    (action,) = session.run(None, {name: value.numpy() for name, value in {**observation, **noise}.items()})
    torch.testing.assert_close(torch.from_numpy(action), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", robot_policies.KINDS)
@pytest.mark.filterwarnings("ignore:The policy has no processors")
@torch.no_grad()
def test_the_steps_equal_those_of_lerobot(kind: str, tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("lerobot.policies.factory", reason="lerobot is not installed")
    policy = robot_policies.build(kind)
    fx_onnx.export_pretrained(policy, tmp_path, task="robot-policy")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    module = sys.modules[type(policy).__module__]
    integrate = module.euler_integrate
    for batch, steps in itertools.product((1, 3), (1, 5, 10)):
        feeds = {
            value.name: np.random.rand(batch, *value.shape[1:]).astype(np.float32) for value in session.get_inputs()
        }
        feeds["observation.language.tokens"] = np.random.randint(1, 100, (batch, 6))
        feeds["observation.language.attention_mask"] = np.arange(6) < np.full((batch, 1), 5)
        feeds["num_steps"] = np.asarray(steps)
        tensors = {name: torch.from_numpy(value) for name, value in feeds.items()}
        observation = {name: value for name, value in tensors.items() if name.startswith("observation")}
        fixed = lambda velocity, noise, _, steps=steps, **options: integrate(velocity, noise, steps, **options)  # noqa: E731
        monkeypatch.setattr(module, "euler_integrate", fixed)
        want = policy.predict_action_chunk(observation, noise=tensors["noise"])
        torch.testing.assert_close(torch.from_numpy(session.run(None, feeds)[0]), want, rtol=1e-5, atol=1e-5)
