"""Exports tiny models for transformers.js in all precisions, runs them in Node, and compares with PyTorch.

    python -m benchmarks.applications_js --modules FOLDER [--only NAME...] [--precisions NAME...] [--webgpu]

FOLDER has node_modules with @huggingface/transformers 4.3.1 (`npm install --ignore-scripts`). With ``--webgpu``, which
needs puppeteer-core too, a page of headless Chromium runs the models with ``device: "webgpu"``. The reference is the
module in the same precision. A model that generates does it twice: freely, and with PyTorch's tokens, so that the
logits of each step can be compared. The outcomes are printed, and docs/applications.md has their summary.
"""

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import fx_onnx
from benchmarks.application_models import Case, case, command_line, inputs_of, outcomes, results_of, saved
from benchmarks.application_sounds import RATIO, music, sound_of, speech
from fx_onnx.applications.inputs import processed
from fx_onnx.applications.layouts import LAYOUTS, PRECISIONS
from fx_onnx.applications.parts import Part
from fx_onnx.applications.precisions import convert
from fx_onnx.applications.source import read_source
from fx_onnx.torch_internals.torch_private import pytree

NAMES = (
    *("bert", "albert", "roberta", "distilbert", "vit", "convnextv2", "segformer", "detr", "owlvit", "swin2sr", "glpn"),
    "patchtst",
    *("wav2vec2", "hubert", "wavlm", "unispeech-sat"),
    *("gpt2", "llama", "qwen2"),
    *("t5", "bart", "marian", "whisper", "vit-gpt2", "vit-trocr", "llava", "clip", "clip-text", "clip-image", "sam"),
    *("musicgen", "speecht5", "clap"),
)

_BROWSER = Path(__file__).with_name("runtime_workers") / "transformers_webgpu.mjs"
IN_NODE = """
import fs from "fs";
const { env, Tensor, LogitsProcessor, ...classes } = await import("@huggingface/transformers");
const [folder, name, dtype, method, output] = process.argv.slice(2);
const device = undefined;
env.allowRemoteModels = false;
env.localModelPath = folder + "/";
const read = (file) => JSON.parse(fs.readFileSync(`${folder}/${file}.json`));
const write = (file, { dims, data }) =>
  fs.writeFileSync(`${folder}/${file}.json`, JSON.stringify({ dims, values: Array.from(data, Number) }));
"""

CLIENT = """
const given = {};
for (const [key, [dims, values]] of Object.entries(read("given")))
  given[key] = /_(values|features|points|embeddings)$/.test(key)
    ? new Tensor("float32", Float32Array.from(values), dims)
    : new Tensor("int64", BigInt64Array.from(values.map(BigInt)), dims);
const model = await classes[name].from_pretrained("out", { dtype, device });
if (method === "speech") {
  const file = { model_file_name: "decoder_postnet_and_vocoder" };
  const vocoder = await classes.SpeechT5HifiGan.from_pretrained("out", { dtype, device, ...file });
  const { input_ids, speaker_embeddings } = given;
  const options = { vocoder, threshold: 9, maxlenratio: RATIO };
  write("found", (await model.generate_speech(input_ids, speaker_embeddings, options)).waveform);
} else if (method === "generate") {
  const { input_features, ...rest } = given;
  let call = { max_new_tokens: 20, do_sample: false, ...rest };
  if (input_features) {
    const start = [BigInt(model.generation_config.decoder_start_token_id)];
    call = { ...call, inputs: input_features, decoder_input_ids: Array(input_features.dims[0]).fill(start) };
  }
  write("free", await model.generate(call));
  const tokens = read("wanted"), steps = [];
  class Forced extends LogitsProcessor {
    _call(ids, logits) {
      steps.push(...logits.data);
      logits.data.fill(-Infinity);
      ids.forEach((row, place) => { logits[place].data[tokens[place][row.length]] = 0; });
      return logits;
    }
  }
  const options = { no_repeat_ngram_size: 0, guidance_scale: 1, logits_processor: [new Forced()] };
  write("forced", await model.generate({ ...call, ...options }));
  write("found", { dims: [20, tokens.length, steps.length / 20 / tokens.length], data: steps });
} else {
  const results = await model(given);
  write("found", results[output in results ? output : Object.keys(results)[0]]);
}
""".replace("RATIO", str(RATIO))


def run(chosen: Case, precision: str, folder: Path, modules: Path, in_browser: bool) -> str:
    """Returns the client's difference from PyTorch and the distance from fp32, or what failed."""
    model = saved(chosen, folder / "source")
    (folder / "client.js").write_text(CLIENT, encoding="utf-8")
    (folder / "run.mjs").write_text(IN_NODE + CLIENT, encoding="utf-8")
    (folder / "node_modules").symlink_to((modules / "node_modules").resolve())
    return _one(precision, model, chosen, folder, in_browser)


def _one(precision: str, model: Any, chosen: Case, folder: Path, in_browser: bool) -> str:
    source = folder / "source"
    try:
        fx_onnx.export_pretrained(
            source, folder / "out", task=chosen.task, layout="transformers.js", precision=precision
        )
    except fx_onnx.OnnxExporterError as error:
        return f"refused: {error.message}"
    parts = parts_of(chosen, model, source)
    given = inputs_of(model, {name for part in parts.values() for name in part.kwargs})
    if "embed_tokens" in parts:  # with an image, the client's second step takes the padding of the past for tokens
        given["input_ids"] = given["input_ids"] + 7 * (1 - given["attention_mask"])
        given["attention_mask"] = torch.ones_like(given["attention_mask"])
    (folder / "given.json").write_text(
        json.dumps({key: [list(value.shape), value.flatten().tolist()] for key, value in given.items()})
    )
    want = wanted(chosen, model, parts, precision, given)
    if "tokens" in want:
        (folder / "wanted.json").write_text(json.dumps(want["tokens"].tolist()))
    output = "logits" if "tokens" in want else next(reversed(parts.values())).outputs[0]
    call = "generate" if "tokens" in want else "speech" if "speaker_embeddings" in given else "forward"
    name = chosen.in_js or type(model).__name__
    started = [str(_BROWSER), str(folder / "node_modules"), "client.js"] if in_browser else ["run.mjs", str(folder)]
    command = ["node", *started, name, precision, call, output]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        return f"fails: {next((line for line in done.stderr.splitlines() if 'Error: ' in line), done.stderr[-300:])}"
    results, tokens = _read(folder / "found.json"), ""
    if "tokens" in want:
        results, free = results.transpose(0, 1), _read(folder / "free.json")
        equal = (free == want["tokens"]).float().mean()
        tokens = f" ({equal:.0%})" if chosen.generates and equal < 1 else ""
    if "sound" in want:
        tokens = f" (sound: {_distance(_read(folder / 'forced.json'), want['sound']):.1e})"
    if precision == "fp32" and chosen.task == "text-to-audio":
        sound, made = sound_of(model, given, source), _read(folder / "free.json") if tokens else results
        tokens += f" (whole: {_distance(made[..., : sound.shape[-1]], sound):.1e})"
    if results.shape != want[output].shape:
        return f"fails: {list(results.shape)} instead of {list(want[output].shape)}"
    return f"{_distance(results, want[output]):.1e}{tokens}"


def _distance(found: Tensor, want: Tensor) -> float:
    return ((found - want).abs().max() / want.abs().max()).item()


def _read(file: Path) -> Tensor:
    found = json.loads(file.read_text())
    return torch.tensor(found["values"]).reshape(found["dims"])


def parts_of(chosen: Case, model: Any, source: Path) -> dict[str, Part]:
    """Returns the parts of a model by name, of an encoder and a decoder the merged ones."""
    found = read_source(source, chosen.task, None, False)
    forms = found.row.parts(model, found.row.outputs, processed(found.processors))
    return {each.name: each for each in forms if not each.forms or LAYOUTS["transformers.js"].form in each.forms}


def wanted(
    chosen: Case, model: Any, parts: dict[str, Part], precision: str, given: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Returns the results of the modules in a precision; in fp32, those of the model itself if it generates."""
    if precision == "fp32" and chosen.generates:
        return results_of(chosen, model, given)
    modules = {name: convert(part.module, part.kwargs, precision).module for name, part in parts.items()}
    with torch.no_grad():
        if "decoder" in modules:
            return results_of(chosen, modules["decoder"], given)
        if "embed_tokens" in modules:
            return _chat(chosen, modules, model.config.image_token_id, given)
        if "encodec_decode" in modules:
            return music(modules, parts["decoder_model_merged"], given)
        if "decoder_postnet_and_vocoder" in modules:
            return {"waveform": speech(modules, parts["decoder_model_merged"], given)}
        if "encoder_model" in modules:
            start = model.generation_config.decoder_start_token_id
            return _generated(modules, parts["decoder_model_merged"], given, start)
        found: dict[str, Tensor] = dict(given)
        for name, module in modules.items():
            found |= module(**{key: found[key] for key in parts[name].kwargs})
        return found


def _chat(chosen: Case, modules: dict[str, Any], image_token: int, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tokens and logits of a decoder that reads images."""
    embeddings = modules["embed_tokens"](input_ids=given["input_ids"])["inputs_embeds"]
    features = modules["vision_encoder"](pixel_values=given["pixel_values"])["image_features"]
    embeddings[given["input_ids"] == image_token] = features
    inputs = {key: given[key] for key in ("input_ids", "attention_mask")} | {"inputs_embeds": embeddings}
    return results_of(chosen, modules["decoder_model_merged"], inputs)


def _generated(modules: dict[str, Any], part: Part, given: dict[str, Tensor], start: int) -> dict[str, Tensor]:
    """Returns 20 tokens of an encoder and a decoder, and logits. The states of the encoder are never in the past."""
    states = modules["encoder_model"](**given)["last_hidden_state"]
    mask = {"encoder_attention_mask": given["attention_mask"]} if "encoder_attention_mask" in part.kwargs else {}
    past = pytree.tree_map(
        lambda x: x.new_zeros(len(states), x.shape[1], 0, x.shape[3]), part.kwargs["past_key_values"]
    )
    empty, spec = pytree.tree_flatten(past)
    tokens, steps = torch.full((len(states), 1), start), list[Tensor]()
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
        steps.append(logits[:, -1])
        tokens = torch.cat([tokens, logits[:, -1].scatter(1, tokens, -torch.inf).argmax(-1, keepdim=True)], 1)
    return {"tokens": tokens, "logits": torch.stack(steps, 1)}


def main() -> None:
    """Prints the outcomes."""
    parser = command_line(__doc__)
    parser.add_argument("--modules", required=True, type=Path, help="a folder with node_modules")
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS), help="the precisions that are run")
    parser.add_argument("--webgpu", action="store_true", help="in a browser, on WebGPU")
    options = parser.parse_args()
    assert set(PRECISIONS) == set(LAYOUTS["transformers.js"].suffixes)
    pairs = [(name, precision) for name in options.only or NAMES for precision in options.precisions]
    runs = {
        f"{name} {each}": partial(run, case(name), each, modules=options.modules, in_browser=options.webgpu)
        for name, each in pairs
    }
    outcomes(runs, options.kept)


if __name__ == "__main__":
    main()
