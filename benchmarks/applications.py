"""Exports tiny models to folders for applications, loads them in the unedited client, and compares with PyTorch.

    python -m benchmarks.applications --client PYTHON

PYTHON is the interpreter of an environment with optimum-onnx 0.1.0; everything else runs in the environment of fx_onnx.
The models have random weights. Before the client loads a folder, it must hold an ONNX file, and the client's own
exporter is replaced by an error. The table goes to the end of docs/applications.md.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import transformers

import fx_onnx
from tests.models.families import FAMILIES

TARGET = Path(__file__).parents[1] / "docs" / "applications.md"

CASES = {
    "bert": ("ForSequenceClassification", "text-classification"),
    "distilbert": ("ForTokenClassification", "token-classification"),
    "roberta": ("ForQuestionAnswering", "question-answering"),
    "albert": ("ForMaskedLM", "fill-mask"),
    "mpnet": ("", "feature-extraction"),
    "vit": ("ForImageClassification", "image-classification"),
    "resnet": ("ForImageClassification", "image-classification"),
    "segformer": ("ForSemanticSegmentation", "image-segmentation"),
    "wav2vec2": ("ForCTC", "automatic-speech-recognition"),
    "hubert": ("ForAudioClassification", "audio-classification"),
    "gpt2": ("ForCausalLM", "text-generation"),
    "llama": ("ForCausalLM", "text-generation"),
    "qwen2": ("ForCausalLM", "text-generation"),
}
"""The model type, the end of the name of its class, and its task."""

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
names = {"": "ORTModelForFeatureExtraction"}
model = getattr(client, names.get(name, "ORTModel" + name)).from_pretrained(folder)
given = {k: torch.from_numpy(v) for k, v in np.load(sys.argv[3]).items()}
if name == "ForCausalLM":
    found = {"tokens": model.generate(**given, max_new_tokens=20, min_new_tokens=20, do_sample=False)}
else:
    found = {k: v for k, v in model(**given).items() if v is not None}
np.savez(sys.argv[4], **{k: v.numpy() for k, v in found.items() if isinstance(v, torch.Tensor)})
"""


def run(model_type: str, folder: Path, python: str) -> str:
    """Returns the largest difference of a client's result from PyTorch's, or what failed."""
    suffix, task = CASES[model_type]
    family = next(each for each in FAMILIES if each.name == model_type)
    torch.manual_seed(0)
    config = family.config()
    model = getattr(transformers, f"AutoModel{suffix}").from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)  # so that the tokens of a text differ
    if suffix == "ForCausalLM":
        model.generation_config.pad_token_id, model.generation_config.eos_token_id = 0, None
    model.save_pretrained(folder / "source")
    files = fx_onnx.export_pretrained(folder / "source", folder / "out", task=task)
    session = onnxruntime.InferenceSession(folder / "out" / files[0].name)
    names = {each.name for each in session.get_inputs()}
    given = _inputs(model, names, suffix)
    with torch.no_grad():
        if suffix == "ForCausalLM":
            want = {"tokens": model.generate(**given, max_new_tokens=20, min_new_tokens=20, do_sample=False)}
        else:
            want = {key: value for key, value in model(**given).items() if isinstance(value, torch.Tensor)}
    np.savez(folder / "given.npz", **{key: value.numpy() for key, value in given.items()})
    command = [python, "-c", CLIENT, str(folder / "out"), suffix, str(folder / "given.npz"), str(folder / "found.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        return f"fails: {done.stderr.strip().splitlines()[-1]}"
    found = np.load(folder / "found.npz")
    shared = [key for key in want if key in found]
    if not shared or any(found[key].shape != tuple(want[key].shape) for key in shared):
        return "fails: other outputs or shapes"
    return f"{max(_difference(found[key], want[key].numpy()) for key in shared):.1e}"


def _difference(found: np.ndarray, want: np.ndarray) -> float:
    """Returns the largest difference, relative to the largest magnitude."""
    return float(np.abs(found - want).max()) / max(float(np.abs(want).max()), 1e-9)


def _inputs(model: torch.nn.Module, names: set[str], suffix: str) -> dict[str, torch.Tensor]:
    """Returns inputs of other sizes than those of the export."""
    torch.manual_seed(1)
    if "pixel_values" in names:
        size = getattr(model.config, "image_size", 96)
        return {"pixel_values": torch.randn(3, 3, size, size)}
    if "input_values" in names:
        return {"input_values": torch.randn(3, 5000)}
    mask = torch.ones(2, 9, dtype=torch.int64)
    mask[0, :3] = 0
    ids = torch.randint(5, 90, (2, 9)) * mask
    given = {"input_ids": ids, "attention_mask": mask}
    return given if suffix == "ForCausalLM" or "token_type_ids" not in names else {**given, "token_type_ids": 0 * ids}


def main() -> None:
    """Prints the outcomes, and writes them to the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--client", required=True, help="the Python interpreter with optimum-onnx")
    options = parser.parse_args()
    rows = ["| type | class | largest relative difference |", "|---|---|---|"]
    for model_type, (suffix, _) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = run(model_type, Path(folder), options.client)
            except fx_onnx.OnnxExporterError as error:
                found = f"refused: {error.message}"
        rows.append(f"| {model_type} | ORTModel{suffix or 'ForFeatureExtraction'} | {found} |")
        print(json.dumps([model_type, suffix, found]), flush=True)
    text = TARGET.read_text(encoding="utf-8")
    TARGET.write_text(text[: text.find("| type | class")].rstrip() + "\n\n" + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
