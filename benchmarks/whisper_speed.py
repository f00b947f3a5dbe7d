"""Compares the speed of a Whisper: fx_onnx, torch.onnx, optimum-onnx and torch eager.

    python -m benchmarks.whisper_speed --folder FOLDER [--optimum PYTHON] [--rounds 10]

The model has the sizes of Whisper tiny and random weights. "encoder" is one sound of 3,000 frames, "prefill" is four
tokens, "decode" is one token after 64. A cell has the median CPU time in ms with one thread, and the median of the
ratios to torch eager in the same round. ``--optimum`` is the interpreter of an environment with optimum-onnx; its
encoder does not compute the keys and values of cross-attention, and its prefill does, so "encoder + prefill" compares.
All logits are compared with torch's.
"""

import argparse
import logging
import statistics
import subprocess
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch
import transformers
from torch import Tensor
from transformers import DynamicCache

import fx_onnx
import tests  # noqa: F401  lets torchvision load beside a CPU build of torch
from benchmarks.language_models import session
from benchmarks.vision_language import Sound, Transcript

FRAMES, PAST, PROMPT = 3000, 64, 4
EAGER = "torch eager"
Run = Callable[[], Any]
_OPTIMUM = """
import sys
from optimum.exporters.onnx import main_export
main_export(sys.argv[1], sys.argv[2], task="automatic-speech-recognition-with-past", no_post_process=True, opset=18)
"""


class Encoder(Sound):
    """Turns a sound (batch, mel bins, frames) into the tensors of the cache of cross-attention."""

    def forward(self, sound: Tensor) -> list[Tensor]:
        return _tensors(super().forward(sound))


class Decoder(Transcript):
    """Turns tokens (batch, sequence) and the tensors of both caches into logits and those of the new cache."""

    def forward(self, ids: Tensor, past: list[Tensor], sound: list[Tensor]) -> list[Tensor]:
        logits, text = super().forward(ids, _cache(past), _cache(sound))
        return [logits, *_tensors(text)]


def _tensors(cache: Any) -> list[Tensor]:
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


def _cache(tensors: list[Tensor]) -> DynamicCache:
    return DynamicCache(list(zip(tensors[::2], tensors[1::2], strict=True)))


def arguments(model: Any, length: int, past: int) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Returns tokens, a past and the keys and values of a sound."""
    heads = model.config.decoder_attention_heads
    size, layers = model.config.d_model // heads, 2 * model.config.decoder_layers
    random = [[torch.randn(1, heads, n, size) for _ in range(layers)] for n in (past, FRAMES // 2)]
    return torch.randint(3, 1000, (1, length)), random[0], random[1]


def export_all(model: Any, folder: Path) -> None:
    """Writes the models of fx_onnx and torch.onnx."""
    count = 2 * model.config.decoder_layers
    modules = {
        "encoder": (Encoder(model).eval(), (torch.randn(2, model.config.num_mel_bins, FRAMES),), ({0: "batch"},)),
        "decoder": (
            Decoder(model).eval(),
            tuple([t.repeat(2, *[1] * (t.ndim - 1)) for t in x] if isinstance(x, list) else x.repeat(2, 1)
                  for x in arguments(model, 3, 5)),
            ({0: "batch", 1: "sequence"}, [{0: "batch", 2: "past"}] * count, [{0: "batch"}] * count),
        ),
    }  # fmt: skip
    for name, (module, args, shapes) in modules.items():
        for opset in (20, 23):
            program = fx_onnx.export(module, args, dynamic_shapes=shapes, opset_version=opset, verbose=False)
            program.save(folder / f"fx_onnx, opset {opset}.{name}.onnx")
        theirs: Any = torch.onnx.export(
            module, args, dynamic_shapes=shapes, dynamo=True, opset_version=20, verbose=False
        )
        theirs.save(folder / f"torch.onnx.{name}.onnx")


def feed(loaded: onnxruntime.InferenceSession, tensors: list[Tensor]) -> Run:
    """Returns a call of a session with the tensors, in the order of its inputs."""
    names = [each.name for each in loaded.get_inputs()]
    given = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
    return lambda: [torch.from_numpy(each) for each in loaded.run(None, given)]


def of_optimum(folder: Path, sound: Tensor, prompt: Any, step: Any) -> dict[str, Run]:
    """Returns the runs of optimum-onnx's three models. The cache has the order key, value for text, then for sound."""
    encoder, first, following = (
        session(folder / "optimum" / f"{name}.onnx", threads=1)
        for name in ("encoder_model", "decoder_model", "decoder_with_past_model")
    )
    states = torch.from_numpy(encoder.run(None, {encoder.get_inputs()[0].name: sound.numpy()})[0])
    by_name = {"input_ids": step[0]}
    for number in range(len(step[1]) // 2):
        for index, kind in enumerate(("key", "value")):
            by_name[f"past_key_values.{number}.decoder.{kind}"] = step[1][2 * number + index]
            by_name[f"past_key_values.{number}.encoder.{kind}"] = step[2][2 * number + index]
    cached = [by_name[each.name] for each in following.get_inputs()]
    starts = [{"input_ids": prompt[0], "encoder_hidden_states": states}[each.name] for each in first.get_inputs()]
    return {"encoder": feed(encoder, [sound]), "prefill": feed(first, starts), "decode": feed(following, cached)}


def runs(model: Any, folder: Path) -> dict[str, dict[str, Run]]:
    """Returns row → task → call."""
    torch.manual_seed(1)
    sound = torch.randn(1, model.config.num_mel_bins, FRAMES)
    prompt, step = arguments(model, PROMPT, 0), arguments(model, 1, PAST)
    encoder, decoder = Encoder(model).eval(), Decoder(model).eval()
    prompt = (prompt[0], prompt[1], encoder(sound))
    eager = {"encoder": lambda: encoder(sound), "prefill": lambda: decoder(*prompt), "decode": lambda: decoder(*step)}
    found = {EAGER: eager}
    for name in ("fx_onnx, opset 20", "fx_onnx, opset 23", "torch.onnx"):
        one, two = (session(folder / f"{name}.{part}.onnx", threads=1) for part in ("encoder", "decoder"))
        found[name] = {
            "encoder": feed(one, [sound]),
            "prefill": feed(two, [prompt[0], *prompt[1], *prompt[2]]),
            "decode": feed(two, [step[0], *step[1], *step[2]]),
        }
    if (folder / "optimum").exists():
        found["optimum-onnx"] = of_optimum(folder, sound, prompt, step)
    return found


def table(found: dict[str, dict[str, Run]], rounds: int, folder: Path) -> list[str]:
    """Returns the rows of a Markdown table."""
    tasks = list(found[EAGER])
    taken: dict[tuple[str, str], list[float]] = {(row, task): [] for row in found for task in tasks}
    worst = {
        row: max(
            float((calls[t]()[0] - found[EAGER][t]()[0]).abs().max() / found[EAGER][t]()[0].abs().max())
            for t in tasks
            if row != "optimum-onnx" or t != "encoder"
        )
        for row, calls in found.items()
    }
    for task in tasks:
        for _ in range(rounds if task == "encoder" else 4 * rounds):
            for row, calls in found.items():
                start = time.process_time()
                calls[task]()
                taken[row, task].append(1e3 * (time.process_time() - start))
    lines = []
    for row in found:
        cells = []
        for task in tasks:
            ratio = statistics.median(a / b for a, b in zip(taken[row, task], taken[EAGER, task], strict=True))
            cells.append(f"{statistics.median(taken[row, task]):.1f}, {ratio:.2f}")
        lines.append(f"| {row} | {_nodes(folder, row)} | {' | '.join(cells)} | {worst[row]:.0e} |")
    return lines


def _nodes(folder: Path, row: str) -> str:
    """Returns the numbers of nodes of the encoder and of the decoders."""
    names = ("encoder_model", "decoder_model", "decoder_with_past_model")
    files = [folder / "optimum" / f"{name}.onnx" for name in names] if row == "optimum-onnx" else []
    files = files or [folder / f"{row}.{part}.onnx" for part in ("encoder", "decoder")]
    counts = [len(onnx.load(file, load_external_data=False).graph.node) for file in files if file.exists()]
    return " + ".join(map(str, counts))


def main() -> None:
    """Exports what is missing in the folder, and prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--optimum", help="the interpreter of an environment with optimum-onnx")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    heads = {
        "encoder_attention_heads": 6,
        "decoder_attention_heads": 6,
        "encoder_ffn_dim": 1536,
        "decoder_ffn_dim": 1536,
    }
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(d_model=384, **heads)).eval()
    options.folder.mkdir(parents=True, exist_ok=True)
    if not list(options.folder.glob("torch.onnx.decoder.onnx")):
        export_all(model, options.folder)
    if options.optimum and not (options.folder / "optimum").exists():
        model.save_pretrained(options.folder / "weights")
        folders = [str(options.folder / name) for name in ("weights", "optimum")]
        subprocess.run([options.optimum, "-c", _OPTIMUM, *folders], check=True)
    print("| | nodes | encoder | prefill | decode | difference |", "|---|---|---|---|---|---|", sep="\n")
    print(*table(runs(model, options.folder), options.rounds, options.folder), sep="\n")


if __name__ == "__main__":
    main()
