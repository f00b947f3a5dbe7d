"""Runs models of fx_onnx and torch.onnx in other runtimes: which load, which are right, and why others fail.

    python -m benchmarks.runtimes [--runtimes openvino,onnxruntime-web] [--models bert,gpt2] [--folder build/runtimes]

Each runtime gets its own environment in the folder: a virtual environment, or a folder of node modules. The models
are those of benchmarks/runtime_models.py with dynamic dims, and each is run at two sizes. The folder keeps the files
and the outcomes, so a run continues where an earlier one ended; ``--again`` repeats the selected ones. The last lines
are the table of docs/runtimes.md.

``--prepare`` writes the files and FOLDER/jobs.json, and runs nothing. Copy the folder to a machine that has the
runtime, a GPU perhaps, and run ``python -m benchmarks.runtime_jobs FOLDER/jobs.json`` there. This needs a runtime in
Python. Copy FOLDER/outcomes back: this command then prints the table.
"""

from __future__ import annotations

import argparse
import inspect
import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch.utils import _pytree as pytree

import fx_onnx
from benchmarks.runtime_jobs import WORKERS, Job, Outcome, keep, kept_at, outcome
from benchmarks.runtime_models import MODELS, TOLERANCE_OF_INT8, TOLERANCE_OF_ROUNDED, Model
from fx_onnx.onnx_model import opsets
from fx_onnx.requests import pytrees
from fx_onnx.targets.known_targets import find_target
from tests.models.registry import Inputs


@dataclass(frozen=True)
class Runtime:
    """A runtime, or a tool that changes a model for ONNX Runtime, and how to start it.

    Attributes:
        name: its name in ``--runtimes``.
        packages: what its environment has. Those of the worker in JavaScript are npm's, all others PyPI's.
        target: the target of the models; None for the default one.
        worker: the file in ``runtime_workers``.
        place: the folder of the environment; its name if empty.
        seconds: how long one model may take.
        tolerance: the tolerance, if it is larger than that of the models.
    """

    name: str
    packages: tuple[str, ...]
    target: str | None = None
    worker: str = "python_runtimes.py"
    place: str = ""
    seconds: int = 120
    tolerance: float = 0.0

    @property
    def is_npm(self) -> bool:
        """Whether the packages are npm's."""
        return self.worker.endswith(".mjs")


_WEB = "onnxruntime-web@1.30.0"
_TOOLS = (
    "onnx==1.23.2", "onnxruntime==1.31.1", "sympy", "onnxslim==0.1.98", "onnxsim==0.8.1", "onnxconverter-common==1.16.0"
)  # fmt: skip


def _tool(name: str, tolerance: float = 0.0) -> Runtime:
    return Runtime(name, _TOOLS, worker="model_tools.py", place="model_tools", tolerance=tolerance)


_ALL = (
    Runtime("openvino", ("openvino==2026.4.1", "onnx"), "openvino"),
    Runtime("onnxruntime-web", (_WEB,), "onnxruntime-web", "onnxruntime_web.mjs"),
    Runtime("chromium", (_WEB, "puppeteer-core@25.16.0"), "onnxruntime-web", "onnxruntime_web.mjs"),
    Runtime("webgpu", (_WEB, "puppeteer-core@25.16.0"), "webgpu", "onnxruntime_web.mjs", seconds=300),
    Runtime("onnxruntime", ("onnxruntime==1.31.1",)),
    Runtime("onnxruntime-cuda", ("onnxruntime-gpu[cuda,cudnn]==1.31.1",), "onnxruntime-cuda"),
    Runtime("reference", ("onnx==1.23.2",), "reference", seconds=60),
    Runtime("tract", ("tract==0.23.9", "numpy"), "tract"),
    Runtime("mnn", ("mnn==3.6.1", "numpy"), "mnn"),
    Runtime("iree", ("iree-base-compiler[onnx]==3.13.0", "iree-base-runtime==3.13.0")),
    Runtime("tinygrad", ("tinygrad==0.14.0", "onnx", "numpy"), seconds=60),
    _tool("strict_shape_inference"),
    _tool("symbolic_shape_infer"),
    _tool("onnxslim"),
    _tool("onnxsim"),
    _tool("transformers_optimizer"),
    _tool("transformers_float16", TOLERANCE_OF_ROUNDED),
    _tool("common_float16", TOLERANCE_OF_ROUNDED),
    _tool("quantize_dynamic", TOLERANCE_OF_INT8),
    _tool("quantize_static", TOLERANCE_OF_INT8),
)
RUNTIMES = {each.name: each for each in _ALL}


# ---------------------------------------------------------------- export


def tensors(tree: Any) -> list[torch.Tensor]:
    """Returns the tensors of a structure, in order."""
    pytrees.register(tree)  # the caches of transformers, before an export does it
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


class Files:
    """The files of one model: one for each target of fx_onnx and each opset of torch.onnx, and the tensors of its runs.

    fx_onnx captures the model once; torch.onnx's files are kept for all runtimes.
    """

    def __init__(self, model: Model, folder: Path) -> None:
        self.model, self.folder = model, folder
        self.module = model.build()
        self.examples = model.examples(self.module)
        self.captured: Any = None

    def export(self, exporter: str, target: str | None, opset: int, again: bool) -> Path:
        """Returns the file, which it writes if there is none or if it shall be written again."""
        place = f"torch.onnx.{opset}" if exporter == "torch.onnx" else target or "default"
        path = self.folder / "models" / place / f"{self.model.name}.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        if again or not path.exists():
            (self._torch_onnx if exporter == "torch.onnx" else self._fx_onnx)(path, target, opset)
        return path

    def _torch_onnx(self, path: Path, target: str | None, opset: int) -> None:
        inputs = self.model.examples(self.module)[0]  # an export may change a cache
        torch.onnx.export(
            self.model.build(), inputs.args, path, kwargs=inputs.kwargs, verbose=False, external_data=False,
            dynamic_shapes=self.model.dynamic_shapes(inputs), opset_version=opset,
        )  # fmt: skip

    def _fx_onnx(self, path: Path, target: str | None, opset: int) -> None:
        if self.captured is None:
            inputs = self.model.examples(self.module)[0]
            shapes = self.model.dynamic_shapes(inputs)
            program = fx_onnx.export(
                self.module, inputs.args, kwargs=inputs.kwargs, dynamic_shapes=shapes, verbose=False
            )
            self.captured = program.exported_program
        fx_onnx.export(self.captured, (), path, verbose=False, target=target)

    def job(self, runtime: Runtime, exporter: str, path: Path) -> Job:
        """Returns the work of a runtime. The arguments are in the order of the graph's inputs."""
        graph = onnx.load(path, load_external_data=False).graph
        names = [value.name for value in graph.input]
        found = Job(
            runtime.name, runtime.worker, exporter, self.model.name, self._place(path),
            max(self.model.tolerance, runtime.tolerance), runtime.seconds, results=[each.name for each in graph.output],
        )  # fmt: skip
        for number, inputs in enumerate(self.examples):
            given = zip(names, ordered(names, self.module, inputs), strict=True)
            found.inputs.append({name: self._saved(f"{number}.in{i}", x) for i, (name, x) in enumerate(given)})
            found.outputs.append(self._results(number))
        return found

    def _results(self, number: int) -> list[str]:
        known = sorted(self.folder.glob(f"tensors/{self.model.name}.{number}.out*.npy"), key=_index)
        if known:
            return list(map(self._place, known))
        inputs = self.model.examples(self.module)[number]
        with torch.no_grad():
            results = tensors(self.module(*inputs.args, **inputs.kwargs))
        return [self._saved(f"{number}.out{i}", x) for i, x in enumerate(results)]

    def _saved(self, suffix: str, tensor: torch.Tensor) -> str:
        file = self.folder / "tensors" / f"{self.model.name}.{suffix}.npy"
        file.parent.mkdir(exist_ok=True)
        np.save(file, tensor.detach().contiguous().numpy())
        return self._place(file)

    def _place(self, file: Path) -> str:
        return file.relative_to(self.folder).as_posix()


def _index(path: Path) -> int:
    return int(path.stem.rpartition("out")[2])


def ordered(names: Sequence[str], module: torch.nn.Module, inputs: Inputs) -> list[torch.Tensor]:
    """Returns the tensors of a call: those that have an input's name, and the others in the order of forward."""
    named = {name: inputs.kwargs[name] for name in names if torch.is_tensor(inputs.kwargs.get(name))}
    order = list(inspect.signature(module.forward).parameters)
    others = sorted(inputs.kwargs.keys() - named.keys(), key=lambda name: order.index(name) if name in order else -1)
    rest = iter(tensors(inputs.args) + tensors([inputs.kwargs[name] for name in others]))
    return [named[name] if name in named else next(rest) for name in names]


# ---------------------------------------------------------------- environments


def command(runtime: Runtime, folder: Path) -> list[str]:
    """Returns the command that starts the worker of a runtime; installs the runtime if it is not there yet."""
    place = folder / "environments" / (runtime.place or runtime.name)
    if runtime.is_npm:
        if not (place / "node_modules").exists():
            place.mkdir(parents=True, exist_ok=True)
            subprocess.run(["npm", "install", "--silent", "--prefix", str(place), *runtime.packages], check=True)
        where = runtime.name if runtime.name in ("chromium", "webgpu") else "node"
        return ["node", str(WORKERS / runtime.worker), str(place / "node_modules"), where]
    if not place.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([str(place / "bin" / "pip"), "install", "-q", *runtime.packages], check=True)
    return [str(place / "bin" / "python"), str(WORKERS / runtime.worker), runtime.name]


# ---------------------------------------------------------------- the table


def prepared(runtime: Runtime, exporter: str, files: Files, again: bool) -> Job | Outcome:
    """Exports one model; returns the work that is left, or why there is no file."""
    opset = opsets.DEFAULT_OPSET if runtime.target is None else find_target(runtime.target).opset
    try:
        path = files.export(exporter, runtime.target, opset, again and exporter == "fx_onnx")
        return files.job(runtime, exporter, path)
    except Exception as error:  # any exporter's error is a row of the table
        why = f"export: {type(error).__name__}: {error}"[:300].replace("\n", " ")
        return Outcome(exporter, files.model.name, why=why)


def works(
    runtimes: Sequence[str], models: Sequence[Model], exporters: Sequence[str], folder: Path, again: bool
) -> Iterator[tuple[str, Job | Outcome]]:
    """Yields each model in each runtime: its outcome if the folder keeps it, else the work that is left."""
    for model in models:
        files: Files | None = None
        for exporter in exporters:
            for runtime in runtimes:
                kept = kept_at(folder, runtime, model.name, exporter)
                if kept.exists() and not again:
                    yield runtime, Outcome(**json.loads(kept.read_text(encoding="utf-8")))
                else:
                    files = files or Files(model, folder)
                    yield runtime, prepared(RUNTIMES[runtime], exporter, files, again)


def table(found: Sequence[tuple[str, Outcome]], exporters: Sequence[str]) -> Iterator[str]:
    """Yields the lines of the table: models, models that load, models that are right."""
    yield f"| runtime | {' | '.join(exporters)}: exported / load / right |\n|{'---|' * (len(exporters) + 1)}"
    for runtime in dict.fromkeys(name for name, _ in found):
        cells = []
        for exporter in exporters:
            mine = [one for name, one in found if (name, one.exporter) == (runtime, exporter)]
            counts = (sum(getattr(one, name) for one in mine) for name in ("exported", "loads", "right"))
            cells.append(" / ".join(map(str, counts)))
        yield f"| {runtime}: {', '.join(RUNTIMES[runtime].packages)} | {' | '.join(cells)} |"


def placement(found: Sequence[tuple[str, Outcome]]) -> Iterator[str]:
    """Yields how many nodes each provider of a runtime has, for the runtimes whose worker counts them."""
    for runtime, exporter in dict.fromkeys((name, one.exporter) for name, one in found if one.nodes):
        total: dict[str, Counter[str]] = {}
        for operators in (one.nodes for name, one in found if (name, one.exporter) == (runtime, exporter)):
            for provider, counts in operators.items():
                total[provider] = total.get(provider, Counter()) + Counter(counts)
        for provider, each in total.items():
            most = ", ".join(f"{operator} {count}" for operator, count in each.most_common(12))
            yield f"{runtime}, {exporter}: {each.total():,} nodes in {provider}: {most}"


def main() -> None:
    """Prints one line for each model, then the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runtimes", default=",".join(RUNTIMES))
    parser.add_argument("--models", default=",".join(model.name for model in MODELS))
    parser.add_argument("--exporters", default="fx_onnx,torch.onnx")
    parser.add_argument("--folder", type=Path, default=Path("build/runtimes"))
    parser.add_argument("--again", action="store_true", help="repeat what was run before")
    parser.add_argument("--prepare", action="store_true", help="write the files and jobs.json, and run nothing")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    models = [model for model in MODELS if model.name in given.models.split(",")]
    folder, exporters, runtimes = given.folder.resolve(), given.exporters.split(","), given.runtimes.split(",")
    rows: list[tuple[str, Outcome]] = []
    jobs: list[Job] = []
    for runtime, work in works(runtimes, models, exporters, folder, given.again):
        if isinstance(work, Job) and given.prepare:
            jobs.append(work)
            continue
        found = outcome(command(RUNTIMES[runtime], folder), work, folder) if isinstance(work, Job) else work
        keep(folder, runtime, found)
        rows.append((runtime, found))
    if given.prepare:
        (folder / "jobs.json").write_text(json.dumps([asdict(work) for work in jobs]), encoding="utf-8")
        print(f"{folder / 'jobs.json'}: {len(jobs)} jobs")
    print("\n".join([*table(rows, exporters), *placement(rows)]))


if __name__ == "__main__":
    main()
