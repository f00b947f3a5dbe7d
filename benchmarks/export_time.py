"""Measures the cost of an export: seconds of CPU time, peak memory and nodes of fx_onnx, torch.onnx and TorchScript.

    python -m benchmarks.export_time --models resnet50 llama16 --rounds 5 --opset 20

Times are medians of interleaved rounds in one process, after an untimed round. The time of the capture alone
(`torch.export.export`) is in seconds; all other times are multiples of it, with the seconds in parentheses. Peak memory
is that of a process which does one whole export.
"""

import argparse
import gc
import io
import logging
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

import fx_onnx
from benchmarks.models import BENCHMARKS, DEEP
from tests.models.registry import Inputs

NEWEST_TORCHSCRIPT_OPSET = 20
TIMES = ("fx_onnx after", "fx_onnx whole", "torch.onnx after", "torch.onnx whole", "TorchScript")
PEAKS = ("capture", "fx_onnx", "torch.onnx", "TorchScript")
HEADER = ("model", "capture s", *TIMES, *(f"MiB {name}" for name in PEAKS), "nodes fx_onnx", "nodes torch.onnx")


class Job(NamedTuple):
    """A network, and how to export it."""

    model: nn.Module
    inputs: Inputs
    dynamic_shapes: Any
    opset: int


def make_job(name: str, opset: int, dynamic: bool) -> Job:
    """Returns the job of a named network, with static dims unless `dynamic`."""
    benchmark = {**BENCHMARKS, **DEEP}[name]
    return Job(benchmark.build(), benchmark.inputs(), benchmark.dynamic_shapes if dynamic else None, opset)


def capture(job: Job) -> ExportedProgram:
    """Runs torch.export alone. It infers every named dim."""
    shapes = pytree.tree_map_only(str, lambda _: Dim.AUTO, job.dynamic_shapes)
    return torch.export.export(job.model, job.inputs.args, job.inputs.kwargs, dynamic_shapes=shapes, strict=False)


def fx_onnx_after(job: Job, program: ExportedProgram) -> fx_onnx.ONNXProgram:
    """Runs the stages of fx_onnx after the capture, and returns the optimized model."""
    return fx_onnx.export(program, opset_version=job.opset, verbose=False)


def torch_onnx_after(job: Job, program: ExportedProgram) -> torch.onnx.ONNXProgram:
    """Runs torch.onnx on the captured program, and returns the optimized model."""
    return torch.onnx.export(program, opset_version=job.opset, dynamo=True, verbose=False)


def fx_onnx_whole(job: Job) -> fx_onnx.ONNXProgram:
    """Exports with fx_onnx, including the capture."""
    args, kwargs = job.inputs
    return fx_onnx.export(
        job.model, args, kwargs=kwargs, dynamic_shapes=job.dynamic_shapes, opset_version=job.opset, verbose=False
    )


def torch_onnx_whole(job: Job) -> torch.onnx.ONNXProgram:
    """Exports with torch.onnx, including the capture."""
    args, kwargs = job.inputs
    return torch.onnx.export(
        job.model,
        args,
        kwargs=kwargs,
        dynamic_shapes=job.dynamic_shapes,
        opset_version=job.opset,
        dynamo=True,
        verbose=False,
    )


class Positional(nn.Module):
    """Calls a model with keyword arguments, for a tracer that passes all arguments by position."""

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *tensors: Tensor) -> Any:
        positional = tensors[: len(tensors) - len(self.names)]
        return self.model(*positional, **dict(zip(self.names, tensors[len(positional) :], strict=True)))


def torchscript(job: Job) -> None:
    """Runs the TorchScript exporter with static dims, at its newest opset if the job asks for a newer one."""
    args, kwargs = job.inputs
    model = Positional(job.model, list(kwargs)).eval()
    opset = min(job.opset, NEWEST_TORCHSCRIPT_OPSET)
    torch.onnx.export(model, (*args, *kwargs.values()), io.BytesIO(), opset_version=opset, dynamo=False)


WHOLE = dict(zip(PEAKS, (capture, fx_onnx_whole, torch_onnx_whole, torchscript), strict=True))


def timed(work: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    """Returns the seconds of CPU time that `work` takes, and its result."""
    gc.collect()
    start = time.process_time()
    result = work(*args)
    return time.process_time() - start, result


def peak_mib(exporter: str, name: str, opset: int, dynamic: bool) -> str:
    """Returns the peak resident MiB of a process that builds the network and exports it once, or "-" if that fails.

    A child process inherits the peak of its parent, so call this before the parent builds a network.
    """
    command = [sys.executable, "-m", "benchmarks.export_time", "--models", name, "--opset", str(opset)]
    command += ["--peak", exporter, *(["--dynamic"] if dynamic else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "-"


def measure(name: str, rounds: int, opset: int, dynamic: bool) -> list[str]:
    """Returns the row of one network without its memory: the times, then the node counts. A failure shows its error."""
    job = make_job(name, opset, dynamic)
    seconds: dict[str, list[float]] = defaultdict(list)
    nodes: dict[str, str] = {}
    failures: dict[str, str] = {}
    for number in range(rounds + 1):
        taken, program = timed(capture, job)
        seconds["capture"] += [taken] * bool(number)
        afterwards = {"fx_onnx after": fx_onnx_after, "torch.onnx after": torch_onnx_after}
        work = {column: (each, job, program) for column, each in afterwards.items()}
        wholes = {"fx_onnx whole": fx_onnx_whole, "torch.onnx whole": torch_onnx_whole, "TorchScript": torchscript}
        work |= {column: (each, job) for column, each in wholes.items()}
        for column, (exporter, *args) in work.items():
            if column in failures:
                continue
            try:
                taken, made = timed(exporter, *args)
            except Exception as error:
                failures[column] = type(error).__name__
                continue
            seconds[column] += [taken] * bool(number)
            if column in afterwards:
                nodes[column] = str(sum(1 for _ in made.model.graph.all_nodes()))
            del made
    medians = {column: statistics.median(values) for column, values in seconds.items()}
    unit = medians.pop("capture")
    times = {column: f"{seconds / unit:.2f} ({seconds:.2f} s)" for column, seconds in medians.items()}
    cells = [failures.get(column) or times[column] for column in TIMES]
    return [f"{unit:.2f}", *cells, *(nodes.get(column, "-") for column in afterwards)]


def parse_arguments() -> argparse.Namespace:
    """Returns the parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=[*BENCHMARKS, *DEEP], default=list(BENCHMARKS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--opset", type=int, default=20)
    parser.add_argument("--dynamic", action="store_true", help="keep batch and sequence symbolic")
    parser.add_argument("--peak", choices=WHOLE, help="only print the peak MiB of one export of the first model")
    return parser.parse_args()


def main() -> None:
    """Prints a Markdown table, or one number with --peak."""
    options = parse_arguments()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    variant = (options.opset, options.dynamic)
    silence = io.StringIO()
    if options.peak:
        with redirect_stdout(silence), redirect_stderr(silence):
            WHOLE[options.peak](make_job(options.models[0], *variant))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        return
    peaks = {name: [peak_mib(exporter, name, *variant) for exporter in WHOLE] for name in options.models}
    print(f"torch {torch.__version__}, opset {options.opset}, {'dynamic' if options.dynamic else 'static'} shapes,")
    print(f"medians of {options.rounds} rounds, {torch.get_num_threads()} threads; times as multiples of the capture\n")
    print("| " + " | ".join(HEADER) + " |")
    print("|" + "---|" * len(HEADER), flush=True)
    for name, memory in peaks.items():
        with redirect_stdout(silence), redirect_stderr(silence):
            row = measure(name, options.rounds, *variant)
        print("| " + " | ".join([name, *row[:6], *memory, *row[6:]]) + " |", flush=True)


if __name__ == "__main__":
    main()
