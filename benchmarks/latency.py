"""Compares nodes and CPU latency in ONNX Runtime of fx_onnx and torch.onnx at several opsets.

    python -m benchmarks.latency --models bert_base llama16 --opsets 18 20 23 --rounds 10

Latency is the CPU time of one thread: the median of interleaved runs over several sessions of each model, because the
place of the weights in memory changes the latency by some percent. Models are saved to files, because a large
model cannot be loaded from bytes. They are optimized by their exporter and by ONNX Runtime, as users run them.
"products" is the part of the time of fx_onnx's graph in matrix products and convolutions.
"""

import argparse
import io
import json
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch.export import ExportedProgram

from benchmarks.export_time import Job, capture, fx_onnx_after, make_job, torch_onnx_after
from benchmarks.models import BENCHMARKS

HEADER = ("model", "opset", "nodes fx_onnx", "nodes torch.onnx", "fx_onnx ms", "torch.onnx ms", "fx_onnx / torch.onnx",
          "products")  # fmt: skip
PRODUCTS = {"Gemm", "FusedGemm", "MatMul", "FusedMatMul", "Conv", "FusedConv"}


def session(path: Path, profile: str = "") -> onnxruntime.InferenceSession:
    """Returns a session with one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, profile
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def feed(runner: onnxruntime.InferenceSession, job: Job) -> dict[str, Any]:
    """Returns the job's inputs by the model's input names."""
    tensors = [*job.inputs.args, *job.inputs.kwargs.values()]
    return {each.name: tensor.numpy() for each, tensor in zip(runner.get_inputs(), tensors, strict=True)}


def latencies(paths: list[Path], job: Job, rounds: int, sessions: int) -> list[float]:
    """Returns the median milliseconds of each model over all sessions, in interleaved runs after an untimed round."""
    seconds: list[list[float]] = [[] for _ in paths]
    for number in range(sessions):
        order = list(enumerate(paths))[:: -1 if number % 2 else 1]
        runners = {place: session(path) for place, path in order}
        for turn in range(rounds + 1):
            for place, runner in runners.items():
                inputs = feed(runner, job)
                start = time.thread_time()
                runner.run(None, inputs)
                if turn:
                    seconds[place].append(time.thread_time() - start)
        runners.clear()  # the sessions end before the files that they map
    return [statistics.median(times) * 1e3 for times in seconds]


def part_of_products(path: Path, job: Job, folder: Path) -> float:
    """Returns the part of the time of all nodes that matrix products and convolutions take."""
    runner = session(path, str(folder / "profile"))
    for _ in range(3):
        runner.run(None, feed(runner, job))
    seconds = {True: 0, False: 0}
    for event in json.loads(Path(runner.end_profiling()).read_text(encoding="utf-8")):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            seconds[event["args"]["op_name"] in PRODUCTS] += event["dur"]
    return seconds[True] / sum(seconds.values())


def exported(exporter: Callable[..., Any], job: Job, program: ExportedProgram, path: Path) -> str:
    """Returns the number of nodes of the model saved at the path, or "" if the exporter fails."""
    silence = io.StringIO()
    try:
        with redirect_stdout(silence), redirect_stderr(silence):
            made = exporter(job, program)
            made.save(path, external_data=True)
    except Exception:
        return ""
    return str(sum(1 for _ in made.model.graph.all_nodes()))


def measure(job: Job, program: ExportedProgram, rounds: int, sessions: int) -> list[str]:
    """Returns the row of one model at one opset, with "fails" if torch.onnx fails."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        paths = [folder / "ours.onnx", folder / "theirs.onnx"]
        nodes = exported(fx_onnx_after, job, program, paths[0])
        others = exported(torch_onnx_after, job, program, paths[1])
        found = latencies(paths if others else paths[:1], job, rounds, sessions)
        products = part_of_products(paths[0], job, folder)
    row = [nodes, others or "fails", f"{found[0]:.1f}"]
    row += [f"{found[1]:.1f}", f"{found[0] / found[1]:.2f}"] if others else ["-", "-"]
    return [*row, f"{products:.2f}"]


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--opsets", nargs="+", type=int, default=[18, 20, 23, 24])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--dynamic", action="store_true", help="keep batch and sequence symbolic")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    print(f"ONNX Runtime {onnxruntime.__version__}, {'dynamic' if options.dynamic else 'static'} shapes, one thread,")
    print(f"medians of {options.sessions} x {options.rounds} interleaved runs\n")
    print("| " + " | ".join(HEADER) + " |")
    print("|" + "---|" * len(HEADER), flush=True)
    torch.set_num_threads(1)
    for name in options.models:
        job = make_job(name, options.opsets[0], options.dynamic)
        program = capture(job)
        for opset in options.opsets:
            row = measure(job._replace(opset=opset), program, options.rounds, options.sessions)
            print("| " + " | ".join([name, str(opset), *row]) + " |", flush=True)


if __name__ == "__main__":
    main()
