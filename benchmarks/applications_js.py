"""Exports tiny models for transformers.js in all precisions, runs them in Node, and compares with PyTorch.

    python -m benchmarks.applications_js --modules FOLDER [--only NAME...] [--precisions NAME...] [--kept FILE]

FOLDER has node_modules with @huggingface/transformers 4.3.1 (`npm install --ignore-scripts`). The reference is the
module in the same precision. The table goes into docs/applications.md.
"""

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import fx_onnx
from benchmarks.application_models import Case, case, command_line, inputs_of, outcomes, results_of, saved, write_table
from fx_onnx.core.torch_private import pytree
from fx_onnx.pretrained.inputs import processed
from fx_onnx.pretrained.layouts import LAYOUTS
from fx_onnx.pretrained.parts import Part
from fx_onnx.pretrained.precisions import PRECISIONS, convert
from fx_onnx.pretrained.source import read_source

NAMES = (
    *("roberta", "distilbert", "vit", "wav2vec2", "gpt2", "llama", "qwen2"),
    *("t5", "bart", "marian", "whisper", "vit-gpt2", "vit-trocr", "llava", "clip", "clip-text", "clip-image", "sam"),
)

CLIENT = """
import fs from "fs";
const { env, Tensor, ...classes } = await import("@huggingface/transformers");
const [folder, name, dtype, method, output] = process.argv.slice(2);
env.allowRemoteModels = false;
env.localModelPath = folder + "/";
const given = {};
for (const [key, [dims, values]] of Object.entries(JSON.parse(fs.readFileSync(folder + "/given.json"))))
  given[key] = /_(values|features|points)$/.test(key)
    ? new Tensor("float32", Float32Array.from(values), dims)
    : new Tensor("int64", BigInt64Array.from(values.map(BigInt)), dims);
const model = await classes[name].from_pretrained("out", { dtype });
let found;
if (method === "generate") {
  const { input_features, ...rest } = given;
  const call = input_features ? { inputs: input_features, ...rest } : given;
  found = await model.generate({ ...call, max_new_tokens: 20, do_sample: false });
} else {
  const results = await model(given);
  found = results[output in results ? output : Object.keys(results)[0]];
}
fs.writeFileSync(folder + "/found.json", JSON.stringify({ dims: found.dims, values: Array.from(found.data, Number) }));
"""


def run(chosen: Case, precision: str, folder: Path, modules: Path) -> str:
    """Returns the client's difference from PyTorch and the distance from fp32, or what failed."""
    model = saved(chosen, folder / "source")
    (folder / "run.mjs").write_text(CLIENT, encoding="utf-8")
    (folder / "node_modules").symlink_to((modules / "node_modules").resolve())
    return _one(precision, model, chosen, folder)


def _one(precision: str, model: Any, chosen: Case, folder: Path) -> str:
    source = folder / "source"
    try:
        files = fx_onnx.export_pretrained(
            source, folder / "out", task=chosen.task, layout="transformers.js", precision=precision
        )
    except fx_onnx.OnnxExporterError as error:
        return f"refused: {error.message}"
    found = read_source(source, chosen.task, None, False)
    parts = {each.name: each for each in found.row.parts(model, found.row.outputs, processed(found.processors))}
    given = inputs_of(model, {name for part in parts.values() for name in part.kwargs})
    if "input_features" in given:  # transformers.js transcribes one sound in each call
        given = {name: value[:1] for name, value in given.items()}
    if "embed_tokens" in parts:  # with an image, its second step takes the padding of the past for tokens
        given["input_ids"], given["attention_mask"] = given["input_ids"][1:], given["attention_mask"][1:]
        given["pixel_values"] = given["pixel_values"][1:]
    (folder / "given.json").write_text(
        json.dumps({key: [list(value.shape), value.flatten().tolist()] for key, value in given.items()})
    )
    want = _wanted(chosen, model, parts, precision, given)
    call = "generate" if chosen.generates else "forward"
    name = chosen.in_js or type(model).__name__
    command = ["node", "run.mjs", str(folder), name, precision, call, next(reversed(parts.values())).outputs[0]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        return f"fails: {next((line for line in done.stderr.splitlines() if 'Error' in line), done.stderr[-300:])}"
    result = json.loads((folder / "found.json").read_text())
    if result["dims"] != list(want.shape):
        return f"fails: {result['dims']} instead of {list(want.shape)}"
    values = torch.tensor(result["values"]).reshape(want.shape)
    distance = max(file.distance for file in files)
    if chosen.generates:
        return f"{(values == want).float().mean():.0%} of the tokens, {distance:.1e}"
    return f"{((values - want).abs().max() / want.abs().max()).item():.1e}, {distance:.1e}"


def _wanted(chosen: Case, model: Any, parts: dict[str, Part], precision: str, given: dict[str, Tensor]) -> Tensor:
    """Returns the tokens or the first result of the modules in a precision; in fp32, those of the model itself."""
    if precision == "fp32" and chosen.generates:
        return results_of(chosen, model, given)["tokens"]
    modules = {name: convert(part.module, part.kwargs, precision).module for name, part in parts.items()}
    with torch.no_grad():
        if "decoder" in modules:
            return results_of(chosen, modules["decoder"], given)["tokens"]
        if "embed_tokens" in modules:
            return _chat(chosen, modules, model.config.image_token_id, given)
        if "encoder_model" in modules:
            start = model.generation_config.decoder_start_token_id
            return _generated(modules, parts["decoder_model_merged"], given, start)
        found: dict[str, Tensor] = dict(given)
        for name, module in modules.items():
            found |= module(**{key: found[key] for key in parts[name].kwargs})
        return found[next(reversed(parts.values())).outputs[0]]


def _chat(chosen: Case, modules: dict[str, Any], image_token: int, given: dict[str, Tensor]) -> Tensor:
    """Returns the tokens of a decoder that reads images."""
    embeddings = modules["embed_tokens"](given["input_ids"])["inputs_embeds"]
    features = modules["vision_encoder"](given["pixel_values"])["image_features"]
    embeddings[given["input_ids"] == image_token] = features
    inputs = {"inputs_embeds": embeddings, "attention_mask": given["attention_mask"]}
    return torch.cat([given["input_ids"], results_of(chosen, modules["decoder_model_merged"], inputs)["tokens"]], 1)


def _generated(modules: dict[str, Any], part: Part, given: dict[str, Tensor], start: int) -> Tensor:
    """Returns 20 tokens of an encoder and a decoder. The states of the encoder are never in the past."""
    states = modules["encoder_model"](**given)["last_hidden_state"]
    mask = {"encoder_attention_mask": given["attention_mask"]} if "encoder_attention_mask" in part.kwargs else {}
    past = pytree.tree_map(
        lambda x: x.new_zeros(len(states), x.shape[1], 0, x.shape[3]), part.kwargs["past_key_values"]
    )
    empty, spec = pytree.tree_flatten(past)
    tokens = torch.full((len(states), 1), start)
    for _ in range(20):
        new = tokens[:, -1:]
        logits, *present = modules["decoder_model_merged"](
            input_ids=new, encoder_hidden_states=states, past_key_values=past, **mask
        )
        kept = [
            old if ".encoder." in name else each
            for name, old, each in zip(part.outputs[1:], empty, present, strict=True)
        ]
        past = pytree.tree_unflatten(kept, spec)
        tokens = torch.cat([tokens, logits[:, -1].scatter(1, tokens, -torch.inf).argmax(-1, keepdim=True)], 1)
    return tokens


def main() -> None:
    """Prints the outcomes, and writes them to the page."""
    parser = command_line(__doc__)
    parser.add_argument("--modules", required=True, type=Path, help="a folder with node_modules")
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS), help="the precisions that are run")
    options = parser.parse_args()
    assert set(PRECISIONS) == set(LAYOUTS["transformers.js"].suffixes)
    pairs = [(name, precision) for name in options.only or NAMES for precision in options.precisions]
    runs = {f"{name} {each}": partial(run, case(name), each, modules=options.modules) for name, each in pairs}
    found = outcomes(runs, options.kept)
    if not options.only:
        first = f"| in Node | {' | '.join(options.precisions)} |"
        cells = {name: [found[f"{name} {each}"] for each in options.precisions] for name in NAMES}
        rows = [f"| {name} | {' | '.join(row)} |" for name, row in cells.items()]
        write_table(first, [first, "|---" * (len(options.precisions) + 1) + "|", *rows])


if __name__ == "__main__":
    main()
