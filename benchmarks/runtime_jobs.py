"""Runs exported files in a runtime and compares the results: the part of benchmarks/runtimes.py that needs only NumPy.

    python -m benchmarks.runtime_jobs build/runtimes/jobs.json [--processes 4]

runs what ``python -m benchmarks.runtimes --prepare`` wrote, on a machine that has the runtime but not this PyTorch. The
folder of jobs.json is all that it reads. It keeps the outcomes there, where benchmarks/runtimes.py finds them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

WORKERS = Path(__file__).resolve().parent / "runtime_workers"


@dataclass
class Job:
    """One file and its runs. All paths begin at the folder of the benchmark, so that the folder can be moved.

    Attributes:
        runtime: the name of the runtime.
        worker: the file in ``runtime_workers``.
        exporter: "fx_onnx" or "torch.onnx".
        model: the name of the network.
        path: the ONNX file.
        tolerance: the largest difference of a right result, as a share of the largest number of the output.
        seconds: how long the runs may take.
        inputs: the .npy files of the arguments of each run.
        outputs: the .npy files of the expected results of each run.
        results: the names of the outputs.
    """

    runtime: str
    worker: str
    exporter: str
    model: str
    path: str
    tolerance: float
    seconds: int
    inputs: list[dict[str, str]] = field(default_factory=list)
    outputs: list[list[str]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    @property
    def written(self) -> str:
        """Where the worker writes its files: ``WRITTEN.RUN.OUTPUT.npy`` for a result."""
        return f"results/{self.runtime}/{self.model}.{self.exporter}"


@dataclass
class Outcome:
    """The result of one model in one runtime.

    Attributes:
        exporter: "fx_onnx" or "torch.onnx".
        model: the name of the network.
        exported: whether there is a file.
        loads: whether the runtime loads it.
        right: whether the results are right at both sizes.
        why: the first problem.
        nodes: provider of the runtime → operator → the number of its nodes, if the worker counts them.
    """

    exporter: str
    model: str
    exported: bool = False
    loads: bool = False
    right: bool = False
    why: str = ""
    nodes: dict[str, dict[str, int]] = field(default_factory=dict)


def outcome(worker: Sequence[str], work: Job, folder: Path) -> Outcome:
    """Runs a job and compares its results with the expected ones."""
    found = Outcome(work.exporter, work.model, exported=True)
    reply = run(worker, work, folder)
    found.loads, found.why, found.nodes = reply["loads"], reply.get("why", ""), reply.get("nodes", {})
    if found.loads and not found.why:
        found.why = compared(work, folder)
        found.right = not found.why
    return found


def run(worker: Sequence[str], work: Job, folder: Path) -> dict[str, Any]:
    """Runs one job in a separate process, because a runtime may crash."""
    written = folder / work.written
    written.parent.mkdir(parents=True, exist_ok=True)
    for file in written.parent.glob(f"{written.name}.*"):  # an earlier run wrote it
        file.unlink()
    given = json.dumps(asdict(work) | {"written": work.written})
    try:
        done = subprocess.run(
            [*worker, given], cwd=folder, capture_output=True, text=True, timeout=work.seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return {"loads": False, "why": f"no result in {work.seconds} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"loads"')]
    return json.loads(lines[-1]) if lines else {"loads": False, "why": (done.stderr or "it crashed").strip()[-200:]}


def compared(work: Job, folder: Path) -> str:
    """Returns the first difference between the results that the worker wrote and the expected ones; empty if none."""
    for number, expected in enumerate(work.outputs):
        for place, file in enumerate(expected):
            want, result = np.load(folder / file).astype(np.float64), folder / f"{work.written}.{number}.{place}.npy"
            if not result.exists():
                return f"run {number}, output {place}: no result"
            found = np.load(result).astype(np.float64)
            if found.shape != want.shape:
                return f"run {number}, output {place}: shape {found.shape} instead of {want.shape}"
            scale = max(1e-6, float(np.abs(want).max(initial=0)))
            error = float(np.abs(found - want).max(initial=0)) / scale
            if not error <= work.tolerance:
                return f"run {number}, output {place}: differs by {error:.1e}"
    return ""


def kept_at(folder: Path, runtime: str, model: str, exporter: str) -> Path:
    """Returns the file of an outcome."""
    return folder / "outcomes" / runtime / f"{model}.{exporter}.json"


def keep(folder: Path, runtime: str, found: Outcome) -> None:
    """Writes an outcome, and prints its line."""
    file = kept_at(folder, runtime, found.model, found.exporter)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(found)), encoding="utf-8")
    state = "right" if found.right else "loads" if found.loads else "exported" if found.exported else "no file"
    print(f"{runtime:16} {found.model:24} {found.exporter:10} {state:8} {found.why}", flush=True)


def main() -> None:
    """Prints one line for each job."""
    parser = argparse.ArgumentParser()
    parser.add_argument("jobs", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    folder = given.jobs.resolve().parent
    jobs = [Job(**each) for each in json.loads(given.jobs.read_text(encoding="utf-8"))]
    with ThreadPoolExecutor(given.processes) as pool:
        workers = [[sys.executable, str(WORKERS / work.worker), work.runtime] for work in jobs]
        for work, found in zip(jobs, pool.map(partial(outcome, folder=folder), workers, jobs), strict=True):
            keep(folder, work.runtime, found)


if __name__ == "__main__":
    main()
