"""Exports a model larger than the memory: a Llama on the meta device, saved by reference to safetensors, and run.

    python -m benchmarks.weights_by_reference --gigabytes 8.5 --folder /tmp/reference

Each row is a separate process. The first writes the shards, which repeat one block of random numbers; the second
captures the model on the meta device and saves it by reference; the third runs it in ONNX Runtime. "peak" is resident
memory, including the pages that ONNX Runtime maps from the shards; "own" excludes mapped pages.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, HEADS, HIDDEN, VOCABULARY = 2048, 16, 8192, 32000
SHARD_BYTES = 2 * 1024**3


class Layer(nn.Module):
    """A layer of Llama: attention with rotary embeddings, then a gated feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        h = self.before(x)
        q, k, v = (p(h).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = (t * cos + torch.cat((-t.chunk(2, -1)[1], t.chunk(2, -1)[0]), -1) * sin for t in (q, k))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        h = self.after(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """An embedding, the layers that the size needs, and a head."""

    def __init__(self, gigabytes: float) -> None:
        super().__init__()
        each = 4 * (4 * WIDTH * WIDTH + 3 * WIDTH * HIDDEN)
        count = max(1, -int(-(gigabytes * 1024**3 - 8 * VOCABULARY * WIDTH) // each))
        self.embed, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.layers, self.norm = nn.ModuleList([Layer() for _ in range(count)]), nn.RMSNorm(WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        x, half = self.embed(tokens), WIDTH // HEADS // 2
        steps = torch.arange(tokens.shape[1], device=x.device, dtype=x.dtype)[:, None]
        angles = steps * 10000 ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
        angles = torch.cat((angles, angles), -1)
        for layer in self.layers:
            x = layer(x, angles.cos(), angles.sin())
        return self.head(self.norm(x))


def on_meta(gigabytes: float) -> Llama:
    """Returns the model on the meta device, without data."""
    with torch.device("meta"):
        return Llama(gigabytes).eval()


def write(folder: Path, gigabytes: float) -> None:
    """Writes the shards and their index, with one block in memory at a time."""
    block = (torch.randn(4 * 1024**2, generator=torch.Generator().manual_seed(0)) * 0.02).numpy().tobytes()
    shards: list[dict[str, Tensor]] = [{}]
    for name, tensor in on_meta(gigabytes).state_dict().items():
        if sum(t.nbytes for t in shards[-1].values()) + tensor.nbytes > SHARD_BYTES:
            shards.append({})
        shards[-1][name] = tensor
    for number, shard in enumerate(shards):
        header, end = {}, 0
        for name, tensor in shard.items():
            header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [end, end + tensor.nbytes]}
            end += tensor.nbytes
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with (folder / f"{number}.safetensors").open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for start in range(0, end, len(block)):
                file.write(block[: min(len(block), end - start)])
    index = {name: f"{number}.safetensors" for number, shard in enumerate(shards) for name in shard}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


def export(folder: Path, gigabytes: float) -> None:
    """Exports the model from the meta device, with references to the shards."""
    import fx_onnx

    tokens = torch.zeros(1, 16, dtype=torch.int64, device="meta")
    program = fx_onnx.export(on_meta(gigabytes), (tokens,), dynamic_shapes=({1: "length"},), verbose=False)
    program.save(folder / "model.onnx", weights_from=folder)


def run(folder: Path, _: float) -> None:
    """Runs one step with the weights mapped from the shards, so that ONNX Runtime does not fold, pack or copy them."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_prepacking", "1")
    session = onnxruntime.InferenceSession(
        folder / "model.onnx", options, providers=["CPUExecutionProvider"], disabled_optimizers=["ConstantFolding"]
    )
    (logits,) = session.run(None, {session.get_inputs()[0].name: np.arange(8, dtype=np.int64)[None]})
    if logits.shape != (1, 8, VOCABULARY) or not np.isfinite(logits).all() or logits.std() == 0:
        raise ValueError("the logits have a wrong shape, are not finite, or are all equal")


STEPS = {"write": write, "export": export, "run": run}


def status(field: str) -> int:
    """Returns a number from the status of this process in MiB (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) // 1024


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the parameters")
    parser.add_argument("--folder", type=Path, help="where the shards go, to be kept; default: a temporary folder")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if options.step:
        start = time.perf_counter()
        STEPS[options.step](options.folder, options.gigabytes)
        print(f"{time.perf_counter() - start:.1f} | {status('VmHWM')} | {status('RssAnon')}")
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        header = "| step | seconds | peak MiB | own MiB at the end | safetensors MiB | model.onnx MiB |"
        print(header, "|" + "---|" * 6, sep="\n")
        for step in STEPS:
            command = [sys.executable, "-m", "benchmarks.weights_by_reference", "--step", step, "--folder", str(folder)]
            command += ["--gigabytes", str(options.gigabytes)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=dict(os.environ))
            shards = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
            model = sum(path.stat().st_size for path in folder.glob("model.onnx*"))
            print(f"| {step} | {done.stdout.strip()} | {shards >> 20} | {model / 2**20:.1f} |", flush=True)


if __name__ == "__main__":
    main()
