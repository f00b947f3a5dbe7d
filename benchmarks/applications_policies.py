"""Measures the milliseconds in which a policy of lerobot predicts a chunk of actions.

    python -m benchmarks.applications_policies

It prints a row for each policy: ONNX Runtime, PyTorch, and torch.compile, on one thread of the CPU. lerobot must be
installed. The policies have the sizes of their default configs, random weights, and one image of 240 x 320.
"""

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import torch

import fx_onnx

CASES: dict[str, dict[str, Any]] = {
    "act": {},
    "diffusion": {"noise_scheduler_type": "DDIM", "num_inference_steps": 10, "crop_shape": None},
}
ROUNDS = 5


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
    """Returns the median time of a call, after one that is not counted."""
    times = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - start))
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


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| policy | ONNX Runtime | PyTorch | torch.compile | difference |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in CASES:
            print(row(kind, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
