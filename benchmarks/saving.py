"""Measures time and memory of saving: one file, external data, plain writes and torch.save.

    python -m benchmarks.saving --megabytes 1024 --rounds 3 --folder /data

Every method writes the same bytes to files of the same folder, in turns. There are two times: until the call returns,
when the bytes may still be in the page cache, and until they are on the disk (fsync). "adds" is resident memory.
"""

import argparse
import os
import statistics
import tempfile
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import fx_onnx

WIDTH = 2048


class Stack(nn.Module):
    """Matrices, half of which are saved unchanged (Gemm) and half transposed (MatMul)."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(count)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x) if number % 2 else layer(x[None])[0]
        return x


def plain(model: nn.Module) -> Callable[[Path], None]:
    """Writes the bytes of each weight with one call."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            for tensor in model.state_dict().values():
                file.write(tensor.numpy().data)

    return write


def resident() -> int:
    """Returns the resident memory of this process in MiB."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def peak_of(work: Callable[[], None]) -> int:
    """Returns by how many MiB the process grows while ``work`` runs."""
    before, peak, done = resident(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, resident() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    done.set()
    watcher.join()
    return peak


def timed(write: Callable[[Path], None], folder: Path) -> tuple[float, float]:
    """Returns the seconds until the call returns, and until everything is on the disk. Removes the files."""
    os.sync()  # write the remaining bytes of the previous run first
    start = time.perf_counter()
    write(folder / "model.onnx")
    returned = time.perf_counter() - start
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    seconds = time.perf_counter() - start
    for path in folder.iterdir():
        path.unlink()
    return returned, seconds


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="on the disk to be measured; default: the temporary folder's")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    model = Stack(max(1, (options.megabytes << 20) // (4 * WIDTH * WIDTH))).eval()
    program = fx_onnx.export(model, (torch.randn(2, WIDTH),), verbose=False)
    ways: dict[str, Callable[[Path], None]] = {
        "plain writes": plain(model),
        "save": program.save,
        "save, external data": lambda path: program.save(path, external_data=True),
        "torch.save": lambda path: torch.save(model.state_dict(), path),
    }
    seconds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        memory = {name: peak_of(lambda write=write: timed(write, folder)) for name, write in ways.items()}  # type: ignore[misc]
        for _ in range(options.rounds):
            for name, write in ways.items():
                seconds[name].append(timed(write, folder))
    size = sum(tensor.nbytes for tensor in model.state_dict().values()) >> 20
    print(f"{size} MiB, medians of {options.rounds} interleaved rounds; rates relative to plain writes\n")
    print("| way | s on disk | rate on disk | rate until it returns | adds MiB |\n|---|---|---|---|---|")
    median = {n: [statistics.median(column) for column in zip(*s, strict=True)] for n, s in seconds.items()}
    base = median["plain writes"]
    for name, (returned, disk) in median.items():
        print(f"| {name} | {disk:.2f} | {base[1] / disk:.2f} | {base[0] / returned:.2f} | {memory[name]} |")


if __name__ == "__main__":
    main()
