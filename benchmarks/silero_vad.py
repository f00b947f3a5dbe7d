"""Exports the TorchScript file of the package silero-vad, and compares it with the ONNX files of the package.

    pip download --no-deps silero-vad --dest DIRECTORY
    unzip DIRECTORY/silero_vad-*.whl -d DIRECTORY
    python -m benchmarks.silero_vad DIRECTORY/silero_vad/data

``silero_vad.jit`` detects speech in chunks of audio, at 16 and at 8 kHz, and keeps a state from chunk to chunk. Its
authors wrote the ONNX files for several targets by hand. The script exports the network of each rate with a dynamic
batch, and the whole module, whose state becomes buffers, and prints the largest differences of the probabilities.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor

import fx_onnx

RATES = {16000: (512, 64, "_model"), 8000: (256, 32, "_model_8k")}  # samples, context, the network's attribute
STATE = (2, 128)
HEADER = ("compared with", "rate", "batch", "chunks", "difference", "its difference from the .jit", "nodes")

# The file, its rates, and what it is compared on: the batch that it takes.
FILES = {
    "silero_vad.onnx": ((16000, 8000), (1, 3)),
    "silero_vad_op18_ifless.onnx": ((16000, 8000), (1, 3)),
    "silero_vad_16k_op15.onnx": ((16000,), (1, 3)),
    "silero_vad_openvino_16k.onnx": ((16000,), (1,)),
}  # silero_vad_half.onnx has the weights of another network
Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # samples with context, state → probability, state


def chunks(rate: int, batch: int, count: int) -> Iterator[Tensor]:
    """Yields chunks of a voice-like signal, (batch, samples): vowels of changing pitch and loudness, and pauses."""
    samples = RATES[rate][0]
    time = torch.arange(samples * count) / rate
    generator = torch.Generator().manual_seed(rate + batch)
    rows = []
    for row in range(batch):
        pitch = 110 + 40 * torch.sin(2 * torch.pi * 0.7 * time + row)
        phase = 2 * torch.pi * torch.cumsum(pitch, 0) / rate
        voice = sum(torch.sin(k * phase) / k for k in range(1, 25))
        loudness = torch.relu(torch.sin(2 * torch.pi * 1.5 * time + row)) ** 2
        rows.append(0.2 * voice * loudness + 0.002 * torch.randn(len(time), generator=generator))
    yield from torch.stack(rows).split(samples, dim=1)


def probabilities(step: Step, rate: int, batch: int, count: int) -> Tensor:
    """Returns the probabilities of all chunks; the context and the state are kept from chunk to chunk."""
    context, state = torch.zeros(batch, RATES[rate][1]), torch.zeros(STATE[0], batch, STATE[1])
    found = []
    for chunk in chunks(rate, batch, count):
        samples = torch.cat([context, chunk], dim=1)
        probability, state = step(samples, state)
        context = samples[:, -RATES[rate][1] :]
        found.append(probability)
    return torch.cat(found, dim=1)


def step_of_file(path: Path, rate: int) -> Step:
    """Returns the step of one of the package's ONNX files."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = {value.name for value in session.get_inputs()}

    def step(samples: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        feeds: dict[str, Any] = {"input": samples.numpy(), "state": state.numpy(), "sr": np.array(rate)}
        probability, new = session.run(None, {name: value for name, value in feeds.items() if name in names})
        return torch.from_numpy(probability), torch.from_numpy(new)

    return step


def whole(module: Any, rate: int, count: int) -> tuple[Tensor, fx_onnx.ONNXProgram]:
    """Returns the probabilities of the exported whole module, which keeps its state itself, and the program."""
    first, *_ = chunks(rate, 1, 1)
    module.reset_states()
    module(torch.zeros_like(first), rate)  # the state gets its final shape
    module._state.zero_()
    module._context.zero_()
    program = fx_onnx.export(module, (first, rate), verify=True)
    program.state = {}
    return torch.cat([program(chunk)[0] for chunk in chunks(rate, 1, count)], dim=1), program


def compare(folder: Path, count: int) -> Iterator[tuple[Any, ...]]:
    """Yields the rows of the table."""
    module = torch.jit.load(folder / "silero_vad.jit", map_location="cpu").eval()
    for rate, (samples, context, name) in RATES.items():
        example = (torch.randn(2, samples + context), torch.zeros(STATE[0], 2, STATE[1]))
        dims = {"x": {0: "batch"}, "state": {1: "batch"}}
        program = fx_onnx.export(getattr(module, name), example, dynamic_shapes=dims, verify=True)
        nodes = len(list(program.model.graph))
        for batch in (1, 3):
            own = probabilities(program, rate, batch, count)  # type: ignore[arg-type]
            module.reset_states()
            with torch.no_grad():
                expected = torch.cat([module(chunk, rate) for chunk in chunks(rate, batch, count)], dim=1)
            yield "silero_vad.jit", rate, batch, count, *_largest(own - expected), "", nodes
            for file, (rates, batches) in FILES.items():
                if rate in rates and batch in batches:
                    other = probabilities(step_of_file(folder / file, rate), rate, batch, count)
                    yield file, rate, batch, count, *_largest(own - other, other - expected), nodes
            if batch == 1:
                found, stateful = whole(module, rate, count)
                nodes_of_whole = len(list(stateful.model.graph))
                yield "silero_vad.jit, whole module", rate, 1, count, *_largest(found - expected), "", nodes_of_whole


def _largest(*differences: Tensor) -> list[str]:
    return [f"{difference.abs().max():.1e}" for difference in differences]


def main() -> None:
    """Prints the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder `silero_vad/data` of the unpacked wheel")
    parser.add_argument("--chunks", type=int, default=200)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    onnxruntime.set_default_logger_severity(3)
    print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER))
    for row in compare(options.folder, options.chunks):
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
