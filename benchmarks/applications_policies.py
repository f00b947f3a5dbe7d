"""Measures the milliseconds in which a policy of lerobot predicts a chunk of actions.

    python -m benchmarks.applications_policies

It prints a row for each policy: ONNX Runtime, PyTorch, and torch.compile, on one thread of the CPU. lerobot must be
installed. The policies have the sizes of their default configs, random weights, and one image of 240 x 320.

    python -m benchmarks.applications_policies --steps

prints the milliseconds of small policies that integrate a velocity, for several numbers of steps: the loop in the
program, and a loop of Python around the program of one step.
"""

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import fx_onnx
from tests.models import robot_policies

CASES: dict[str, dict[str, Any]] = {
    "act": {},
    "diffusion": {"noise_scheduler_type": "DDIM", "num_inference_steps": 10, "crop_shape": None},
}
ROUNDS = 5
_TOKENS, _MASK = "observation.language.tokens", "observation.language.attention_mask"


def policy_of(kind: str) -> Any:
    """Returns a policy with random weights."""
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.factory import get_policy_class, make_policy_config

    features = {
        "observation.state": PolicyFeature(type=FeatureType.STATE, shape=(14,)),
        "observation.images.top": PolicyFeature(type=FeatureType.VISUAL, shape=(3, 240, 320)),
    }
    output = {"action": PolicyFeature(type=FeatureType.ACTION, shape=(14,))}
    options = {"input_features": features, "output_features": output, "pretrained_backbone_weights": None}
    return get_policy_class(kind)(make_policy_config(kind, **options, device="cpu", **CASES[kind])).eval()


def milliseconds(call: Callable[[], Any]) -> float:
    """Returns the median time of this thread for a call, after one that is not counted."""
    times = []
    for _ in range(ROUNDS + 1):
        start = time.thread_time()
        call()
        times.append(1000 * (time.thread_time() - start))
    return statistics.median(times[1:])


@torch.no_grad()
def row(kind: str, folder: Path) -> str:
    """Returns the cells of a policy."""
    policy = policy_of(kind)
    fx_onnx.export_pretrained(policy, folder / kind, task="robot-policy")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / kind / "model.onnx", options)
    inputs = {value.name: torch.rand(1, *value.shape[1:]) for value in session.get_inputs()}
    feeds = {name: value.numpy() for name, value in inputs.items()}
    noise = {name: inputs.pop(name) for name in list(inputs) if name == "noise"}
    predict = policy.predict_action_chunk
    want = predict(dict(inputs), **noise)
    difference = (torch.from_numpy(session.run(None, feeds)[0]) - want).abs().max().item()
    compiled = torch.compile(predict)
    runs = [
        lambda: session.run(None, feeds),
        *(lambda call=call: call(dict(inputs), **noise) for call in (predict, compiled)),
    ]
    cells = [f"{milliseconds(run):.1f}" for run in runs]
    return f"| {kind} | {' | '.join(cells)} | {difference:.1e} |"


@torch.no_grad()
def rows_of_steps(kind: str, folder: Path) -> list[str]:
    """Returns the rows of a policy that integrates a velocity."""
    fx_onnx.export_pretrained(robot_policies.build(kind), folder / kind, task="robot-policy")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    whole, before, step = (
        onnxruntime.InferenceSession(folder / kind / f"{name}.onnx", options)
        for name in ("model", "policy_prefix", "policy_step")
    )
    feeds = {value.name: np.ones([1, *value.shape[1:]], np.float32) for value in whole.get_inputs()}
    feeds[_TOKENS] = feeds[_TOKENS].astype(np.int64)
    feeds[_MASK] = feeds[_MASK].astype(bool)
    names = {value.name for value in before.get_inputs()}
    observation = {name: value for name, value in feeds.items() if name in names}
    noise, taken = feeds["noise"], {value.name for value in step.get_inputs()}

    def python(count: int) -> Any:
        prefix = dict(zip([value.name for value in before.get_outputs()], before.run(None, observation), strict=True))
        sample = action = noise
        for number in range(count):
            moment, size = (np.asarray(value, np.float32) for value in (1 - number / count, -1 / count))
            given = {"sample": sample, "time": moment, "step_size": size, **prefix}
            sample, action = step.run(None, {name: value for name, value in given.items() if name in taken})
        return action

    rows = []
    for count in (1, 5, 10):
        feeds["num_steps"] = np.asarray(count)
        loop, around = milliseconds(lambda: whole.run(None, feeds)), milliseconds(lambda count=count: python(count))
        difference = np.abs(whole.run(None, feeds)[0] - python(count)).max()
        rows.append(f"| {kind} | {count} | {loop:.2f} | {around:.2f} | {difference:.1e} |")
    return rows


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", action="store_true")
    is_of_steps = parser.parse_args().steps
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if is_of_steps:
        print("| policy | steps | loop in the program | loop of Python | difference |\n|---|---|---|---|---|")
        with tempfile.TemporaryDirectory() as folder:
            for kind in robot_policies.KINDS:
                print(*rows_of_steps(kind, Path(folder)), sep="\n", flush=True)
        return
    print("| policy | ONNX Runtime | PyTorch | torch.compile | difference |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in CASES:
            print(row(kind, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
