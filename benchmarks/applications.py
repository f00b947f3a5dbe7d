"""Exports tiny models to folders for applications, loads them in the unedited client, and compares with PyTorch.

    python -m benchmarks.applications --client PYTHON [--precision NAME] [--only NAME...] [--kept FILE]

PYTHON is the interpreter of an environment with optimum-onnx 0.1.0; everything else runs in the environment of fx_onnx.
Before the client loads a folder, it must hold an ONNX file, and the client's own exporter is replaced by an error. The
outcomes are printed, and docs/applications.md has their summary. The second number of an outcome is that of the
client's own export of the same source, in the client's environment. Another precision than fp32 is compared with the
modules in this precision, and has no such number.
"""

import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import torch

import fx_onnx
from benchmarks.application_models import (
    CASES,
    Case,
    command_line,
    examples_of,
    inputs_of,
    outcomes,
    results_of,
    saved,
)
from benchmarks.applications_js import parts_of, wanted

CLIENTS = {
    "": "ForFeatureExtraction",
    "ForImageTextToText": "ForVision2Seq",
    **dict.fromkeys(
        (
            *("ForObjectDetection", "ForZeroShotObjectDetection", "ForDepthEstimation", "ForMaskedImageModeling"),
            *("ForVideoClassification", "ForDocumentQuestionAnswering", "CLIPSegForImageSegmentation"),
            *("PatchTSTForPrediction", "PatchTSMixerForPrediction"),
            *("ForKeypointDetection", "ForVisualQuestionAnswering", "ClapModel"),
        ),
        "ForCustomTasks",
    ),
}
"""The ends of the names of the client's classes, where they differ from transformers'."""

OWN_TASKS = {
    "summarization": "text2text-generation",
    "translation": "text2text-generation",
    "image-segmentation": "semantic-segmentation",
    "image-feature-extraction": "feature-extraction",
    "time-series": "time-series-forecasting",
    "masked-image-modeling": "masked-im",
}
"""The client's names of tasks, where they are others."""

CLIENT = """
import json, sys, warnings
from pathlib import Path
import numpy as np, torch
import optimum.exporters.onnx as exporter
if sys.argv[6]:
    exporter.main_export("source", sys.argv[1], task=sys.argv[6], do_validation=False)
def refuse(*args, **kwargs): raise AssertionError("the client exports the model itself")
exporter.main_export = refuse
import optimum.onnxruntime as client
folder, name = Path(sys.argv[1]), sys.argv[2]
assert list(folder.rglob("*.onnx")), "no ONNX file"
model = getattr(client, name).from_pretrained(folder)
given = {k: torch.from_numpy(v) for k, v in np.load(sys.argv[3]).items()}
if sys.argv[5] == "generate":
    found = {"tokens": model.generate(**given, max_new_tokens=20, do_sample=False, num_beams=1)}
else:
    found = {k: v for k, v in model(**given).items() if v is not None}
np.savez(sys.argv[4], **{k: v.numpy() for k, v in found.items() if isinstance(v, torch.Tensor)})
"""


def run(chosen: Case, folder: Path, python: str, precision: str) -> str:
    """Returns two cells, for this export and, in fp32, the client's own.

    Each is the largest difference of a client's result from PyTorch's. What fails is printed with its error.
    """
    model = saved(chosen, folder / "source")
    given = inputs_of(model, _names(chosen, folder, precision, examples_of(chosen, model)))
    if precision == "fp32":
        want = results_of(chosen, model, given)
    else:
        want = wanted(chosen, model, parts_of(chosen, model, folder / "source"), precision, given)
        if chosen.type == "whisper":  # whose client leaves out the first token
            want["tokens"] = want["tokens"][:, 1:]
    np.savez(folder / "given.npz", **{key: value.numpy() for key, value in given.items()})
    cells = [_cell(chosen, folder, python, want, is_own) for is_own in (False, True)[: 1 + (precision == "fp32")]]
    return " | ".join(cells)


def _names(chosen: Case, folder: Path, precision: str, examples: dict[str, torch.Tensor] | None) -> set[str]:
    """Exports the source, and returns the names of the inputs."""
    options = {"task": chosen.task, "layout": chosen.layout, "precision": precision, "inputs": examples}
    files = fx_onnx.export_pretrained(folder / "source", folder / "out", **options)
    sessions = [onnxruntime.InferenceSession(folder / "out" / file.name) for file in files]
    return {each.name for session in sessions for each in session.get_inputs()}


def _cell(chosen: Case, folder: Path, python: str, want: dict[str, torch.Tensor], is_own: bool) -> str:
    name = f"ORTModel{CLIENTS.get(chosen.auto, chosen.auto)}"
    call = "generate" if chosen.generates else "forward"
    own = OWN_TASKS.get(chosen.task, chosen.task) + ("-with-past" if chosen.generates else "") if is_own else ""
    place = folder / ("own" if is_own else "out")
    command = [python, "-c", CLIENT, str(place), name, str(folder / "given.npz"), str(folder / "found.npz"), call, own]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        print(f"{chosen.name}: {done.stderr.strip().splitlines()[-1]}", flush=True)
        return "fails"
    found = np.load(folder / "found.npz")
    shared = [key for key in want if key in found]
    if not shared or any(found[key].shape != tuple(want[key].shape) for key in shared):
        return "fails: other outputs or shapes"
    if chosen.generates:
        return f"{(found['tokens'] == want['tokens'].numpy()).mean():.0%}"
    return f"{max(_difference(found[key], want[key].numpy()) for key in shared):.1e}"


def _difference(found: np.ndarray, want: np.ndarray) -> float:
    """Returns the largest difference, relative to the largest magnitude."""
    return float(np.abs(found - want).max()) / max(float(np.abs(want).max()), 1e-9)


def has_class(chosen: Case) -> bool:
    """Returns whether the client has a class for a case."""
    return not chosen.in_js and chosen.name not in ("llava", "sam", "musicgen", "speecht5")


def main() -> None:
    """Prints the outcomes."""
    parser = command_line(__doc__)
    parser.add_argument("--client", required=True, help="the Python interpreter with optimum-onnx")
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    chosen = [each for each in CASES if (each.name in options.only if options.only else has_class(each))]
    call = partial(run, python=options.client, precision=options.precision)
    outcomes({each.name: partial(call, each) for each in chosen}, options.kept)


if __name__ == "__main__":
    main()
