"""Exports the largest language models with a cache from the meta device, with weights by reference.

    python -m benchmarks.scale [--models llama-8b llama-70b llama-405b deepseek-v3] [--layers 4]

Each row is a separate process. The weights are bfloat16 in sparse safetensors files, which have the size of the real
checkpoint but take no space on the disk. Batch, sequence and past are dynamic. "capture" and "after" are CPU seconds of
the capture and of everything after it, with saving; "peak" is the resident memory of the process. Garbage is collected
before the export.
"""

import argparse
import gc
import json
import logging
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import tests  # noqa: F401  lets torchvision load beside a CPU build of torch

LLAMA = {"vocab_size": 128256, "max_position_embeddings": 131072, "num_key_value_heads": 8}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-8b": ("llama", {**LLAMA, "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336}),
    "llama-70b": (
        "llama",
        {**LLAMA, "num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64},
    ),
    "llama-405b": (
        "llama",
        {**LLAMA, "num_hidden_layers": 126, "hidden_size": 16384, "intermediate_size": 53248}
        | {"num_attention_heads": 128},
    ),
    "deepseek-v3": ("deepseek_v3", {}),  # the defaults of transformers are its sizes
}
"""Name → the model type of transformers, and the sizes of its config."""


def on_meta(name: str, layers: int | None) -> Any:
    """Returns the model in bfloat16 on the meta device."""
    import transformers

    model_type, sizes = MODELS[name]
    config = transformers.CONFIG_MAPPING[model_type](**sizes)
    config.num_hidden_layers = layers or config.num_hidden_layers
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def write_sparse(folder: Path, tensors: dict[str, torch.Tensor]) -> int:
    """Writes one safetensors file without data, and returns its size in bytes."""
    names = {torch.bfloat16: "BF16", torch.float32: "F32"}
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape)}
        header[name]["data_offsets"] = [end, end + tensor.nbytes]
        end += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return end


def export(name: str, layers: int | None, folder: Path) -> str:
    """Exports and saves one model, and returns its row."""
    import fx_onnx

    model = on_meta(name, layers)
    size = write_sparse(folder, model.state_dict())
    arguments = fx_onnx.text_generation_arguments(model)
    fx_onnx.export(torch.nn.Identity().eval(), torch.ones(1), verbose=False)  # imports the stages
    gc.collect()
    start = time.process_time()
    with capture_seconds() as seconds:
        program = fx_onnx.export(model, **arguments, verbose=False)
    # The frequencies of the rotary embedding are not in a checkpoint.
    rotary = type(model.model.rotary_emb)(config=model.config)
    program.apply_weights({f"model.rotary_emb.{each}": tensor for each, tensor in rotary.named_buffers()})
    program.save(folder / "model.onnx", weights_from=folder)
    whole, capture = time.process_time() - start, sum(seconds)
    file = (folder / "model.onnx").stat().st_size / 2**20
    nodes = sum(program.summary().operators.values())
    count = model.config.num_hidden_layers
    cells = [name, count, f"{size / 1e9:.0f}", f"{capture:.1f}", f"{whole - capture:.1f}"]
    cells += [f"{(whole - capture) / capture:.2f}", peak_mebibytes(), nodes, f"{file:.1f}"]
    return f"| {' | '.join(map(str, cells))} |"


@contextmanager
def capture_seconds() -> Iterator[list[float]]:
    """Yields the list of the CPU seconds of each capture in the context."""
    from fx_onnx import pipeline

    found, capture = list[float](), pipeline.capture

    def timed(*args: Any) -> Any:
        start = time.process_time()
        result = capture(*args)
        found.append(time.process_time() - start)
        return result

    with mock.patch.object(pipeline, "capture", timed):
        yield found


def peak_mebibytes() -> int:
    """Returns the peak of the resident memory of this process (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--layers", type=int, help="the number of layers, instead of the model's")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if options.one:
        with tempfile.TemporaryDirectory() as folder:
            print(export(options.models[0], options.layers, Path(folder)))
        return
    columns = ("model", "layers", "GB", "capture", "after", "ratio", "peak MiB", "nodes", "model.onnx MiB")
    print(f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), sep="\n")
    for name in options.models:
        command = [sys.executable, "-m", "benchmarks.scale", "--one", "--models", name]
        command += ["--layers", str(options.layers)] if options.layers else []
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        print(done.stdout.strip().splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
