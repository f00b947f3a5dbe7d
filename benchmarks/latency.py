"""Are the graphs leaner and faster than torch.onnx's? Nodes and ONNX Runtime CPU latency of both at several opsets.

    python -m benchmarks.latency --models bert_base llama16 --opsets 18 20 23 --rounds 30

One thread. Latencies are medians of interleaved runs: a run of one, a run of the other, again and again. Models go
through files, as large ones must, and are optimized by their exporter and by ONNX Runtime, as users have them.
"""

import argparse
import io
import logging
import statistics
import tempfile
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import onnxruntime
import torch

from benchmarks.export_time import Job, capture, fx_onnx_after, make_job, torch_onnx_after
from benchmarks.models import BENCHMARKS

HEADER = ("model", "opset", "nodes fx_onnx", "nodes torch.onnx", "fx_onnx ms", "torch.onnx ms", "fx_onnx / torch.onnx")
EXPORTERS = (fx_onnx_after, torch_onnx_after)


def session(path: Path) -> onnxruntime.InferenceSession:
    """The model on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def latencies(sessions: list[onnxruntime.InferenceSession], job: Job, rounds: int) -> list[float]:
    """Median milliseconds of each session, run in turns after one untimed round."""
    tensors = [*job.inputs.args, *job.inputs.kwargs.values()]
    arrays = [tensor.numpy() for tensor in tensors]
    feeds = [dict(zip([each.name for each in s.get_inputs()], arrays, strict=True)) for s in sessions]
    seconds: list[list[float]] = [[] for _ in sessions]
    for number in range(rounds + 1):
        for place, (each, feed) in enumerate(zip(sessions, feeds, strict=True)):
            start = time.perf_counter()
            each.run(None, feed)
            if number:
                seconds[place].append(time.perf_counter() - start)
    return [statistics.median(times) * 1e3 for times in seconds]


def measure(name: str, opset: int, dynamic: bool, rounds: int) -> list[str]:
    """The row of one model at one opset."""
    job = make_job(name, opset, dynamic)
    nodes: list[str] = []
    sessions: list[onnxruntime.InferenceSession] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        for number, exporter in enumerate(EXPORTERS):
            path = Path(temporary) / f"{number}.onnx"
            program = exporter(job, capture(job))
            program.save(path, external_data=True)
            nodes.append(str(sum(1 for _ in program.model.graph.all_nodes())))
            sessions.append(session(path))
        ours, theirs = latencies(sessions, job, rounds)
        sessions.clear()  # before the files they map
    return [name, str(opset), *nodes, f"{ours:.1f}", f"{theirs:.1f}", f"{ours / theirs:.2f}"]


def main() -> None:
    """Print one Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=BENCHMARKS, default=["resnet50", "bert_base"])
    parser.add_argument("--opsets", nargs="+", type=int, default=[18, 20, 23])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dynamic", action="store_true", help="keep batch and sequence symbolic")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    print(f"ONNX Runtime {onnxruntime.__version__}, {'dynamic' if options.dynamic else 'static'} shapes, one thread,")
    print(f"medians of {options.rounds} interleaved runs\n")
    print("| " + " | ".join(HEADER) + " |")
    print("|" + "---|" * len(HEADER), flush=True)
    torch.set_num_threads(1)
    for name in options.models:
        for opset in options.opsets:
            silence = io.StringIO()
            with redirect_stdout(silence), redirect_stderr(silence):
                row = measure(name, opset, options.dynamic, options.rounds)
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
