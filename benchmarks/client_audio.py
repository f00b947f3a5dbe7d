"""Calls of projects of speech and reinforcement learning; see benchmarks/client_calls.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.client_registry import assert_exports_right, assert_right, call

# ---------------------------------------------------------------- openai-whisper


def _whisper(part: str, opset: int) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        from whisper.model import ModelDimensions, Whisper

        torch.manual_seed(0)
        model = Whisper(ModelDimensions(80, 100, 32, 2, 2, 99, 40, 32, 2, 2)).eval()
        audio = torch.randn(2, 100, 32)
        tokens = [torch.randint(0, 99, (batch, length)) for batch, length in ((2, 5), (3, 1), (1, 40))]
        if part == "encoder":
            args, others = (torch.randn(1, 80, 200),), [(torch.randn(3, 80, 200),)]
            axes: dict[str, dict[int, str]] = {"mel": {0: "batch"}}
        else:
            args, others = (tokens[0], audio), [(each, torch.randn(len(each), 100, 32)) for each in tokens[1:]]
            axes = {"tokens": {0: "batch", 1: "length"}, "audio": {0: "batch"}}
        assert_exports_right(
            lambda: torch.onnx.export(
                getattr(model, part), args, str(folder / "whisper.onnx"), input_names=list(axes),
                output_names=["result"], dynamic_axes=axes, opset_version=opset,
            ),
            *others,
        )  # fmt: skip

    return run


call("openai-whisper", "torch.onnx.export(model.encoder, mel, dynamic_axes=...)")(_whisper("encoder", 17))
for _opset in (14, 18):
    _text = f"torch.onnx.export(model.decoder, (tokens, audio), opset_version={_opset}, dynamic_axes=...)"
    call("openai-whisper", _text)(_whisper("decoder", _opset))


# ---------------------------------------------------------------- silero-vad


@call("silero-vad", "torch.onnx.export(load_silero_vad(), (chunk, 16000)), after a first call")
def _silero(folder: Path) -> None:
    from silero_vad import load_silero_vad

    model, first, chunk = load_silero_vad(), torch.randn(1, 512), torch.randn(1, 512)
    model(first, 16000)  # gives the state its final shape
    torch.onnx.export(model, (chunk, 16000), str(folder / "vad.onnx"), input_names=["chunk"])
    assert_right(folder / "vad.onnx", (chunk,), model(chunk, 16000))


# ---------------------------------------------------------------- stable-baselines3


def _policy(algorithm: str) -> Callable[[Path], None]:
    """Returns the call of the project's documentation on the export of a policy."""

    def run(folder: Path) -> None:
        import gymnasium
        import numpy as np
        import stable_baselines3

        class Environment(gymnasium.Env):  # type: ignore[misc]
            observation_space = gymnasium.spaces.Box(-1, 1, (5,), np.float32)
            action_space = gymnasium.spaces.Box(-2, 2, (3,), np.float32)
            if algorithm == "DQN":
                action_space = gymnasium.spaces.Discrete(4)

        class Deterministic(nn.Module):
            def __init__(self, policy: Any) -> None:
                super().__init__()
                self.policy = policy

            def forward(self, observation: Tensor) -> Any:
                """Returns the action, and for PPO the value and its log-probability."""
                return self.policy(observation, deterministic=True)

        torch.manual_seed(0)
        model = getattr(stable_baselines3, algorithm)("MlpPolicy", Environment(), device="cpu")
        assert_exports_right(
            lambda: torch.onnx.export(
                Deterministic(model.policy).eval(),
                torch.rand(1, 5),
                str(folder / "policy.onnx"),
                opset_version=17,
                input_names=["input"],
                dynamic_axes={"input": {0: "batch"}},
            ),
            (torch.rand(4, 5),),
        )

    return run


for _algorithm in ("PPO", "SAC", "DQN"):
    call("stable-baselines3", f"torch.onnx.export({_algorithm}().policy, opset_version=17)")(_policy(_algorithm))
