"""Runs models of fx_onnx and torch.onnx in other runtimes: which load, which are right, and why others fail.

    python -m benchmarks.runtimes [--runtimes openvino,onnxruntime-web] [--models bert,gpt2] [--folder build/runtimes]

Each runtime gets its own environment in the folder: a virtual environment, or a folder of node modules. The
models are the networks of ``tests/models/registry.py`` with dynamic dims, and each is run at two sizes. A result is
right if it differs by at most 2e-3 of the largest number of the output. The last lines are the table of
docs/runtimes.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch.utils import _pytree as pytree

import fx_onnx
from fx_onnx.core import opsets
from fx_onnx.targets.known_targets import find_target
from tests.models.registry import CASES, Inputs, ModelCase

WORKERS = Path(__file__).parent / "runtime_workers"
PIP = {
    "openvino": ["openvino==2026.4.1", "onnx"],
    "reference": ["onnx==1.23.2"],
    "tract": ["tract==0.23.9", "numpy"],
    "mnn": ["mnn==3.6.1", "numpy"],
    "iree": ["iree-base-compiler[onnx]==3.13.0", "iree-base-runtime==3.13.0"],
    "tinygrad": ["tinygrad==0.14.0", "onnx", "numpy"],
}
NPM = {
    "onnxruntime-web": ["onnxruntime-web@1.30.0"],
    "chromium": ["onnxruntime-web@1.30.0", "puppeteer-core@25.16.0"],
}
TOLERANCE, SECONDS = 2e-3, 120
TARGETS = {"chromium": "onnxruntime-web", "iree": None, "tinygrad": None}
"""The targets of runtimes that have another name, or no target."""


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
    """

    exporter: str
    model: str
    exported: bool = False
    loads: bool = False
    right: bool = False
    why: str = ""


@dataclass
class Job:
    """One file, the .npy files of the arguments and of the expected results of each run, and the names of outputs."""

    path: str
    inputs: list[dict[str, str]] = field(default_factory=list)
    outputs: list[list[str]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)


# ---------------------------------------------------------------- export


def tensors(tree: Any) -> list[torch.Tensor]:
    """Returns the tensors of a structure, in order."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def export(exporter: str, case: ModelCase, path: Path, target: str | None, opset: int) -> None:
    """Writes the file."""
    inputs = case.example()
    shared: dict[str, Any] = {"kwargs": inputs.kwargs, "dynamic_shapes": case.dynamic_shapes, "verbose": False}
    if exporter == "torch.onnx":
        torch.onnx.export(case.build(), inputs.args, path, **shared, opset_version=opset, external_data=False)
    else:
        fx_onnx.export(case.build(), inputs.args, path, **shared, target=target)


def job(case: ModelCase, path: Path) -> Job:
    """Writes the arguments and the expected results beside the file. The arguments are in the order of graph inputs."""
    graph = onnx.load(path).graph
    names = [value.name for value in graph.input]
    module, found = case.build(), Job(str(path), results=[value.name for value in graph.output])
    for number, inputs in enumerate((case.example(), case.other())):
        with torch.no_grad():
            results = tensors(module(*inputs.args, **inputs.kwargs))
        given = list(zip(names, ordered(module, inputs), strict=True))
        found.inputs.append({name: _saved(path, f"{number}.in{i}", x) for i, (name, x) in enumerate(given)})
        found.outputs.append([_saved(path, f"{number}.out{i}", x) for i, x in enumerate(results)])
    return found


def ordered(module: torch.nn.Module, inputs: Inputs) -> list[torch.Tensor]:
    """Returns the tensors of a call in the order of the parameters of forward."""
    order = list(module.forward.__code__.co_varnames)
    keywords = sorted(inputs.kwargs, key=lambda name: order.index(name) if name in order else len(order))
    return tensors(inputs.args) + tensors([inputs.kwargs[name] for name in keywords])


def _saved(path: Path, suffix: str, tensor: torch.Tensor) -> str:
    file = path.with_suffix(f".{suffix}.npy")
    np.save(file, tensor.detach().contiguous().numpy())
    return str(file)


# ---------------------------------------------------------------- environments


def command(runtime: str, folder: Path) -> list[str]:
    """Returns the command that starts the worker of a runtime; installs the runtime if it is not there yet."""
    place = folder / "environments" / runtime
    if runtime in NPM:
        if not (place / "node_modules").exists():
            place.mkdir(parents=True, exist_ok=True)
            subprocess.run(["npm", "install", "--silent", "--prefix", str(place), *NPM[runtime]], check=True)
        where = "chromium" if runtime == "chromium" else "node"
        return ["node", str(WORKERS / "onnxruntime_web.mjs"), str(place / "node_modules"), where]
    if not place.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([str(place / "bin" / "pip"), "install", "-q", *PIP[runtime]], check=True)
    return [str(place / "bin" / "python"), str(WORKERS / "python_runtimes.py"), runtime]


def run(worker: Sequence[str], work: Job) -> dict[str, Any]:
    """Runs one job in a separate process, because a runtime may crash."""
    try:
        done = subprocess.run(
            [*worker, json.dumps(asdict(work))], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"loads": False, "why": f"no result in {SECONDS} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"loads"')]
    return json.loads(lines[-1]) if lines else {"loads": False, "why": (done.stderr or "it crashed").strip()[-200:]}


def compared(work: Job) -> str:
    """Returns the first difference between the results that the worker wrote and the expected ones; empty if none."""
    for number, expected in enumerate(work.outputs):
        for place, file in enumerate(expected):
            want = np.load(file).astype(np.float64)
            found = np.load(f"{work.path}.{number}.{place}.npy").astype(np.float64)
            if found.shape != want.shape:
                return f"run {number}, output {place}: shape {found.shape} instead of {want.shape}"
            scale = max(1e-6, float(np.abs(want).max(initial=0)))
            error = float(np.abs(found - want).max(initial=0)) / scale
            if not error <= TOLERANCE:
                return f"run {number}, output {place}: differs by {error:.1e}"
    return ""


# ---------------------------------------------------------------- the table


def outcomes(runtime: str, cases: Sequence[ModelCase], exporters: Sequence[str], folder: Path) -> Iterator[Outcome]:
    """Exports and runs each network with each exporter. The files of torch.onnx are kept for other runtimes."""
    worker = command(runtime, folder)
    target = TARGETS.get(runtime, runtime)
    opset = opsets.DEFAULT_OPSET if target is None else find_target(target).opset
    for case in cases:
        for exporter in exporters:
            found = Outcome(exporter, case.name)
            place = f"torch.onnx.{opset}" if exporter == "torch.onnx" else runtime
            path = folder / "models" / place / f"{case.name}.onnx"
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                if exporter == "fx_onnx" or not path.exists():
                    export(exporter, case, path, target, opset)
                work = job(case, path)
                found.exported = True
            except Exception as error:  # any exporter's error is a row of the table
                found.why = f"export: {type(error).__name__}: {error}"[:200].replace("\n", " ")
            if found.exported:
                reply = run(worker, work)
                found.loads, found.why = reply["loads"], reply.get("why", "")
                if found.loads and not found.why:
                    found.why = compared(work)
                    found.right = not found.why
            yield found


def main() -> None:
    """Prints one line for each model, then the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runtimes", default=",".join([*PIP, *NPM]))
    parser.add_argument("--models", default=",".join(case.name for case in CASES))
    parser.add_argument("--exporters", default="fx_onnx,torch.onnx")
    parser.add_argument("--folder", type=Path, default=Path("build/runtimes"))
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    cases = [case for case in CASES if case.name in given.models.split(",")]
    exporters, rows = given.exporters.split(","), []
    for runtime in given.runtimes.split(","):
        found = []
        for one in outcomes(runtime, cases, exporters, given.folder.resolve()):
            found.append(one)
            state = "right" if one.right else "loads" if one.loads else "exported" if one.exported else "no file"
            print(f"{runtime:16} {one.model:24} {one.exporter:10} {state:8} {one.why}", flush=True)
        cells = []
        for exporter in exporters:
            mine = [one for one in found if one.exporter == exporter]
            counts = (sum(getattr(one, name) for one in mine) for name in ("exported", "loads", "right"))
            cells.append(" / ".join(map(str, counts)))
        rows.append(f"| {', '.join((PIP | NPM)[runtime])} | {' | '.join(cells)} |")
    print(f"| runtime | {' | '.join(exporters)}: models / loads / right |\n|{'---|' * (len(exporters) + 1)}")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
