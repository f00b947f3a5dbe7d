"""Measures a whole export beside one torch.export, from outside, and counts the captures of each export.

    python -m benchmarks.captures [--models llama mamba xlnet ...] [--static] [--beside] [--rounds 5] [--results FILE]

A model is a row of tests/models/families.py or of tests/models/registry.py (``small_bert``), or a network of
benchmarks/models.py. Each runs in a process of its own. All numbers are CPU times of calls, measured by this script:

- "torch.export": seconds of `torch.export.export` with the same arguments and dims, or without dims with ``--static``.
- "export": those of `fx_onnx.export`, as a multiple of "torch.export".
- "outside": the part of "export" that is not within its calls of `torch.export.export`. What slows torch down while it
  traces is not in it, but in "export".
- "runs": the part of "outside" in which the module and the program run, to prove what the program promises.
- "torch.onnx": those of `torch.onnx.export` in the same rounds, as such a multiple, with ``--beside``.
- "captures": the number of these calls, with the decisions about them.

A number is the median of interleaved rounds after an untimed one, and garbage is collected before each timing. The last
lines have the medians of both ratios over the models, and the largest.
"""

import argparse
import copy
import gc
import io
import json
import logging
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch.export import Dim
from torch.utils import _pytree as pytree

import fx_onnx
from benchmarks.isolated import Failed, isolated
from benchmarks.models import BENCHMARKS
from fx_onnx.capture.proof.paired_runs import PairedRuns
from tests.models.families import FAMILIES
from tests.models.registry import CASES


class Job(NamedTuple):
    """A module, and the arguments of its export."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic_shapes: Any


def _families() -> dict[str, Callable[[], Job]]:
    def job(family: Any) -> Job:
        module = family.build()
        inputs = family.examples(module)[0]
        return Job(module, (), inputs, family.dynamic_shapes(inputs))

    return {family.name: lambda family=family: job(family) for family in FAMILIES if not family.blocked}


def _networks() -> dict[str, Callable[[], Job]]:
    def job(network: Any, inputs: Any) -> Job:
        return Job(network.build(), *inputs(), network.dynamic_shapes)

    large = {name: lambda network=network: job(network, network.inputs) for name, network in BENCHMARKS.items()}
    return large | {f"small_{case.name}": lambda case=case: job(case, case.example) for case in CASES}


JOBS = {**_families(), **_networks()}
"""Name → a function that makes the job."""

_SAMPLE_TEXT = """
    resnet50 bert_base llama16 swin_t vit_b t5_small small_mlp small_alexnet small_resnet small_mobilenet_v3 small_vit
    small_swin small_unet_bilinear small_bert small_gpt2 small_llama small_t5 small_whisper_encoder small_clip albert
    deberta-v2 modernbert gemma2 xlnet mamba mamba2 falcon_mamba zamba2 jamba lfm2 recurrent_gemma rwkv bart detr
    whisper hubert dinov2 segformer
"""
_RUNS = ("compare", "compare_numbers", "call")
_PARTS = ("outside", "runs", "torch.onnx")
SAMPLE = _SAMPLE_TEXT.split()
"""Networks, encoders, decoders, state space models, vision and speech."""


def plain(job: Job) -> None:
    """Captures with torch.export alone. It infers every named dim."""
    shapes = pytree.tree_map_only(str, lambda _: Dim.AUTO, job.dynamic_shapes)
    torch.export.export(job.module, job.args, copy.deepcopy(job.kwargs), dynamic_shapes=shapes, strict=False)


def whole(job: Job) -> fx_onnx.ONNXProgram:
    """Exports with fx_onnx."""
    given = {"kwargs": copy.deepcopy(job.kwargs), "dynamic_shapes": job.dynamic_shapes}
    return fx_onnx.export(job.module, job.args, **given, verbose=False)


def torch_onnx(job: Job) -> None:
    """Exports with torch.onnx."""
    given = {"kwargs": copy.deepcopy(job.kwargs), "dynamic_shapes": job.dynamic_shapes}
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        torch.onnx.export(job.module, job.args, **given, dynamo=True, verbose=False)


@contextmanager
def timed(owner: Any, *names: str) -> Iterator[list[float]]:
    """Yields the list of the CPU seconds of each call of some functions of a module or a class in the context."""
    found: list[float] = []

    def timer(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                found.append(time.process_time() - start)

        return call

    originals = {name: getattr(owner, name) for name in names}
    for name, function in originals.items():
        setattr(owner, name, timer(function))
    try:
        yield found
    finally:
        for name, function in originals.items():
            setattr(owner, name, function)


def seconds(work: Callable[[Job], Any], job: Job) -> float:
    """Returns the CPU time of a call.

    Garbage is collected before the call. Otherwise the first long call of a round pays for the garbage of the others.
    """
    gc.collect()
    start = time.process_time()
    work(job)
    return time.process_time() - start


def measure(name: str, rounds: int, static: bool, beside: bool) -> dict[str, Any]:
    """Returns the row of one model, with its dynamic sizes or with static ones, and beside torch.onnx."""
    job = JOBS[name]()
    if static:
        job = job._replace(dynamic_shapes=None)
    with timed(torch.export, "export") as calls:
        program = whole(job)
    reason = next(each.note for each in program.export_facts.stages if each.name == "capture")
    row: dict[str, Any] = {"name": name, "static": static, "captures": len(calls), "reason": reason}
    try:
        plain(job)
    except Exception as error:
        row["fails"] = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
    if beside:
        torch_onnx(job)
    times: list[tuple[float, ...]] = []
    for _ in range(rounds):
        alone = seconds(plain, job) if "fails" not in row else 0.0
        with timed(torch.export, "export") as calls, timed(PairedRuns, *_RUNS) as runs:
            export = seconds(whole, job)
        other = seconds(torch_onnx, job) if beside else 0.0
        times.append((alone, export, export - sum(calls), sum(runs), other))
    alone, export, outside, proof, other = (statistics.median(column) for column in zip(*times, strict=True))
    row |= {"alone": alone or (export - outside) / row["captures"], "export": export, "outside": outside, "runs": proof}
    return row | ({"torch.onnx": other} if beside else {})


def guarded(name: str, rounds: int, static: bool, beside: bool, limit: float) -> dict[str, Any]:
    """Returns the row, measured in a process of its own."""
    row = {"name": name, "static": static}
    try:
        return isolated(lambda: measure(name, rounds, static, beside), limit)
    except Failed as error:
        return row | {"error": str(error)}


def text_of(row: dict[str, Any]) -> str:
    """Returns a row of the table."""
    if "error" in row:
        return f"| {row['name']} | {row['error']} | | | | | | |"
    note = "*" if "fails" in row else ""
    cells = [row["name"], f"{row['alone']:.2f}{note}", f"{row['export'] / row['alone']:.2f}"]
    cells += [f"{row[column] / row['alone']:.2f}" if column in row else "" for column in _PARTS]
    cells += [str(row["captures"]), row["reason"]]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints a Markdown table, and the median and the largest of both ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=JOBS, metavar="MODEL", default=SAMPLE)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--static", action="store_true", help="static sizes, on both sides")
    parser.add_argument("--beside", action="store_true", help="measure torch.onnx too")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for each model")
    parser.add_argument("--results", type=Path, help="stores each row; skips models that it has")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    logging.disable(logging.CRITICAL)
    path: Path | None = options.results
    known = [json.loads(line) for line in path.read_text().splitlines()] if path is not None and path.exists() else []
    rows = {row["name"]: row for row in known if row.get("static") == options.static}
    fx_onnx.export(torch.nn.Identity().eval(), torch.ones(1), verbose=False)  # imported once, before the forks
    columns = ("model", "torch.export s", "export", *_PARTS, "captures", "decisions")
    print(f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), sep="\n", flush=True)
    for name in options.models:
        if name not in rows:
            rows[name] = guarded(name, options.rounds, options.static, options.beside, options.limit)
            if path is not None:
                with path.open("a") as file:
                    print(json.dumps(rows[name]), file=file)
        print(text_of(rows[name]), flush=True)
    found = [rows[name] for name in options.models if "fails" not in rows[name] and "error" not in rows[name]]
    print()
    for column in ("export", "outside", "runs"):
        ratios = [row[column] / row["alone"] for row in found]
        print(f"{column}: median {statistics.median(ratios):.2f}, largest {max(ratios):.2f}, over {len(ratios)} models")


if __name__ == "__main__":
    main()
