"""Exports tiny models to folders for applications, loads them in the unedited client, and compares with PyTorch.

    python -m benchmarks.applications --client PYTHON [--only NAME...]

PYTHON is the interpreter of an environment with optimum-onnx 0.1.0; everything else runs in the environment of fx_onnx.
Before the client loads a folder, it must hold an ONNX file, and the client's own exporter is replaced by an error. The
table goes into docs/applications.md.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

import fx_onnx
from benchmarks.application_models import CASES, Case, inputs_of, results_of, saved, write_table

CLIENTS = {
    "": "ForFeatureExtraction",
    "ForImageTextToText": "ForVision2Seq",
    "ForObjectDetection": "ForCustomTasks",
}
"""The ends of the names of the client's classes, where they differ from transformers'."""

CLIENT = """
import json, sys, warnings
from pathlib import Path
import numpy as np, torch
import optimum.exporters.onnx as exporter
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


def run(chosen: Case, folder: Path, python: str) -> str:
    """Returns the largest difference of a client's result from PyTorch's, or what failed."""
    model = saved(chosen, folder / "source")
    files = fx_onnx.export_pretrained(folder / "source", folder / "out", task=chosen.task)
    sessions = [onnxruntime.InferenceSession(folder / "out" / file.name) for file in files]
    given = inputs_of(model, {each.name for session in sessions for each in session.get_inputs()})
    want = results_of(chosen, model, given)
    np.savez(folder / "given.npz", **{key: value.numpy() for key, value in given.items()})
    name = f"ORTModel{CLIENTS.get(chosen.auto, chosen.auto)}"
    call = "generate" if chosen.generates else "forward"
    command = [
        *(python, "-c", CLIENT, str(folder / "out"), name, str(folder / "given.npz"), str(folder / "found.npz"), call)
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        return f"fails: {done.stderr.strip().splitlines()[-1]}"
    found = np.load(folder / "found.npz")
    shared = [key for key in want if key in found]
    if not shared or any(found[key].shape != tuple(want[key].shape) for key in shared):
        return "fails: other outputs or shapes"
    if chosen.generates:
        distinct = len(np.unique(found["tokens"]))
        return f"{(found['tokens'] == want['tokens'].numpy()).mean():.0%} of the tokens, {distinct} of them distinct"
    return f"{max(_difference(found[key], want[key].numpy()) for key in shared):.1e}"


def _difference(found: np.ndarray, want: np.ndarray) -> float:
    """Returns the largest difference, relative to the largest magnitude."""
    return float(np.abs(found - want).max()) / max(float(np.abs(want).max()), 1e-9)


def _has_class(chosen: Case) -> bool:
    return not chosen.in_js and chosen.name not in ("llava", "sam")


def main() -> None:
    """Prints the outcomes, and writes them to the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--client", required=True, help="the Python interpreter with optimum-onnx")
    parser.add_argument("--only", nargs="+", help="names of cases; the page does not change then")
    options = parser.parse_args()
    first = "| type | class | difference |"
    rows = [first, "|---|---|---|"]
    for chosen in CASES:
        if chosen.name not in (options.only or [each.name for each in CASES if _has_class(each)]):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = run(chosen, Path(folder), options.client)
            except fx_onnx.OnnxExporterError as error:
                found = f"refused: {error.message}"
        rows.append(f"| {chosen.name} | ORTModel{CLIENTS.get(chosen.auto, chosen.auto)} | {found} |")
        print(json.dumps([chosen.name, chosen.auto, found]), flush=True)
    if not options.only:
        write_table(first, rows)


if __name__ == "__main__":
    main()
