"""Exports tiny models for transformers.js in all precisions, runs them in Node, and compares with PyTorch.

    python -m benchmarks.applications_js --modules FOLDER

FOLDER has node_modules with @huggingface/transformers 4.3.1 (`npm install --ignore-scripts`). The models have random
weights. The exact reference is the module in the same precision. The table goes into docs/applications.md.
"""

import argparse
import copy
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

import fx_onnx
from benchmarks.applications import TARGET, _inputs
from fx_onnx.pretrained.layouts import LAYOUTS
from fx_onnx.pretrained.precisions import PRECISIONS, convert
from fx_onnx.pretrained.tasks import TASKS
from tests.models.families import FAMILIES

CASES = {
    "bert": ("ForMaskedLM", "fill-mask"),
    "distilbert": ("ForTokenClassification", "token-classification"),
    "vit": ("ForImageClassification", "image-classification"),
    "wav2vec2": ("ForCTC", "automatic-speech-recognition"),
    "gpt2": ("ForCausalLM", "text-generation"),
    "llama": ("ForCausalLM", "text-generation"),
    "qwen2": ("ForCausalLM", "text-generation"),
}
"""The model type, the end of the name of its class, and its task."""

CLIENT = """
import fs from "fs";
const { env, Tensor, ...classes } = await import("@huggingface/transformers");
const [folder, name, dtype, task] = process.argv.slice(2);
env.allowRemoteModels = false;
env.localModelPath = folder + "/";
const given = {};
for (const [key, [dims, values]] of Object.entries(JSON.parse(fs.readFileSync(folder + "/given.json"))))
  given[key] = /_values$/.test(key)
    ? new Tensor("float32", Float32Array.from(values), dims)
    : new Tensor("int64", BigInt64Array.from(values.map(BigInt)), dims);
const model = await classes[name].from_pretrained("out", { dtype });
const found = task === "text-generation"
  ? await model.generate({ ...given, max_new_tokens: 20, do_sample: false })
  : (await model(given)).logits;
fs.writeFileSync(folder + "/found.json", JSON.stringify({ dims: found.dims, values: Array.from(found.data, Number) }));
"""


def run(model_type: str, folder: Path, modules: Path) -> list[str]:
    """Returns, for each precision, the distance from fp32 and the client's difference from PyTorch, or what failed."""
    suffix, task = CASES[model_type]
    torch.manual_seed(0)
    config = next(each for each in FAMILIES if each.name == model_type).config()
    model = getattr(transformers, f"AutoModel{suffix}").from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)  # so that the tokens of a text differ
    if suffix == "ForCausalLM":
        model.generation_config.pad_token_id, model.generation_config.eos_token_id = 0, None
        model.config.pad_token_id, model.config.eos_token_id = 0, None
    model.save_pretrained(folder / "source")
    (folder / "run.mjs").write_text(CLIENT, encoding="utf-8")
    (folder / "node_modules").symlink_to((modules / "node_modules").resolve())
    return [f"{name}: {_one(name, model, suffix, task, folder)}" for name in PRECISIONS]


def _one(precision: str, model: Any, suffix: str, task: str, folder: Path) -> str:
    try:
        (file,) = fx_onnx.export_pretrained(
            folder / "source", folder / "out", task=task, layout="transformers.js", precision=precision
        )
    except fx_onnx.OnnxExporterError as error:
        return f"refused: {error.message}"
    (part,) = TASKS[task].parts(copy.deepcopy(model), TASKS[task].outputs)
    module = convert(part.module, part.kwargs, precision).module
    given = _inputs(model, set(part.kwargs), suffix)
    (folder / "given.json").write_text(
        json.dumps({key: [list(value.shape), value.flatten().tolist()] for key, value in given.items()})
    )
    with torch.no_grad():
        is_text = suffix == "ForCausalLM"
        want = module.generate(**given, max_new_tokens=20, do_sample=False) if is_text else module(**given)["logits"]
    command = ["node", "run.mjs", str(folder), type(model).__name__, precision, task]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        return f"fails: {done.stderr.strip()[-300:]}"
    found = json.loads((folder / "found.json").read_text())
    if found["dims"] != list(want.shape):
        return f"fails: {found['dims']} instead of {list(want.shape)}"
    values = torch.tensor(found["values"]).reshape(want.shape)
    if is_text:
        return f"{(values == want).float().mean():.0%} of the tokens, {file.distance:.1e}"
    return f"{((values - want).abs().max() / want.abs().max()).item():.1e}, {file.distance:.1e}"


def main() -> None:
    """Prints the outcomes, and writes them to the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--modules", required=True, type=Path, help="a folder with node_modules")
    options = parser.parse_args()
    assert set(PRECISIONS) == set(LAYOUTS["transformers.js"].suffixes)
    rows = [f"| in Node | {' | '.join(PRECISIONS)} |", "|---" * (len(PRECISIONS) + 1) + "|"]
    for model_type in CASES:
        with tempfile.TemporaryDirectory() as folder:
            found = run(model_type, Path(folder), options.modules)
        rows.append(f"| {model_type} | {' | '.join(each.partition(': ')[2] for each in found)} |")
        print(rows[-1], flush=True)
    before, _, after = TARGET.read_text(encoding="utf-8").partition("| in Node |")
    rest = after.partition("\n\n")[2]
    TARGET.write_text(f"{before}{chr(10).join(rows)}\n\n{rest}", encoding="utf-8")


if __name__ == "__main__":
    main()
