"""Compares the passes of fx_onnx with those of onnx_ir and onnxscript that do the same work, or with an older checkout.

    python -m benchmarks.passes [NETWORK]
    python -m benchmarks.passes --against CHECKOUT

NETWORK is a name of ``tests/models/registry.py``; the default is bert. Each pass runs on a fresh copy of the network as
it is before optimization, so that every pass finds work. Times are process time in milliseconds, the best of ten runs
without garbage collection. The counts are nodes and initializers after the pass.

With ``--against``, the stages of passes of this checkout and of the one in the folder CHECKOUT run in turns over the
networks of ``NETWORKS``. The table has the ratio of the best process times of ``TURNS`` turns, and the nodes where they
differ. The shortest stage takes a third of a millisecond, so the ratio of ten turns varies by a tenth.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import onnx_ir as ir
import onnxscript.optimizer
from onnx_ir.passes import common

import fx_onnx
from fx_onnx.passes.cleanup.constant_evaluation import EvaluateConstants
from fx_onnx.passes.cleanup.identities import eliminate_identities
from fx_onnx.passes.cleanup.redundant_nodes import EliminateCommonSubexpressions, EliminateDeadCode
from fx_onnx.passes.optimize import optimize
from tests.models.registry import CASES

RUNS = 10
TURNS = 40
NETWORKS = ("resnet", "swin", "bert", "llama", "t5", "clip")

Change = Callable[[ir.Model], Any]

PAIRS: dict[str, tuple[Change, Change]] = {
    "dead-code elimination": (EliminateDeadCode(), common.RemoveUnusedNodesPass()),
    "common-subexpression elimination": (EliminateCommonSubexpressions(), common.CommonSubexpressionEliminationPass()),
    "identity elimination": (eliminate_identities, common.IdentityEliminationPass()),
    "constant folding": (EvaluateConstants(), onnxscript.optimizer.fold_constants),
    "the whole optimizer": (optimize, onnxscript.optimizer.optimize),
}
"""The kind of work → our pass and their pass."""


def measured(model: ir.Model, change: Change) -> tuple[float, int, int]:
    """Returns the milliseconds that ``change`` takes, and how many nodes and initializers it leaves."""
    best = float("inf")
    for _ in range(RUNS):
        copy = model.clone()
        gc.collect()
        gc.disable()
        start = time.process_time()
        change(copy)
        best = min(best, time.process_time() - start)
        gc.enable()
    return best * 1e3, sum(1 for _ in copy.graph.all_nodes()), len(copy.graph.initializers)


class Worker:
    """A process that times the stages of passes of one checkout."""

    def __init__(self, checkout: Path, stack: ExitStack) -> None:
        script = Path(__file__).with_name("pass_stages.py")
        environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
        self.process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-P", str(script)],
                cwd=checkout,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        )
        assert self.process.stdin is not None
        stack.callback(self.process.stdin.close)

    def ask(self, line: str) -> Any:
        """Returns the answer to a line."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(line, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def ratios(network: str, ours: Worker, theirs: Worker) -> Iterator[tuple[str, float]]:
    """Prints a row, and yields for each stage the ratio of the best times in turns."""
    sizes = [worker.ask(network) for worker in (ours, theirs)]
    turns = [[worker.ask("") for worker in (ours, theirs)] for _ in range(TURNS)]
    cells = [network, f"{sizes[0]} / {sizes[1]}"]
    for stage in turns[0][0]:
        best = [min(each[place][stage][0] for each in turns) for place in (0, 1)]
        nodes = [turns[0][place][stage][1] for place in (0, 1)]
        cells.append(f"{best[0] / best[1]:.2f}" + f" ({nodes[0]} / {nodes[1]} nodes)" * (nodes[0] != nodes[1]))
        yield stage, best[0] / best[1]
    print("| " + " | ".join(cells) + " |", flush=True)


def against(checkout: Path) -> None:
    """Prints a table of this checkout's times over those of another one, and the median and the largest ratio."""
    with ExitStack() as stack:
        ours, theirs = (Worker(folder.resolve(), stack) for folder in (Path(__file__).parents[1], checkout))
        print("| network | nodes before | optimize | legalize | convert_opset |", "|" + "---|" * 5, sep="\n")
        found = [ratio for network in NETWORKS for _, ratio in ratios(network, ours, theirs)]
    print(f"median {statistics.median(found):.2f}, largest {max(found):.2f}")


def compare(name: str) -> None:
    """Prints one line for each pair."""
    case = next(case for case in CASES if case.name == name)
    inputs = case.example()
    model = fx_onnx.export(
        case.build(),
        inputs.args,
        kwargs=inputs.kwargs,
        dynamic_shapes=case.dynamic_shapes,
        optimize=False,
        verbose=False,
    ).model
    print(f"{name}: {len(model.graph)} nodes, {len(model.graph.initializers)} initializers")
    print(f"{'':34}{'fx_onnx':>24}{'onnx_ir, onnxscript':>24}")
    for label, pair in PAIRS.items():
        cells = ["{:8.1f} ms {:5} {:5}".format(*measured(model, change)) for change in pair]
        print(f"{label:34}{cells[0]:>24}{cells[1]:>24}")


def main() -> None:
    """Prints one of the two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", nargs="?", default="bert")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT")
    options = parser.parse_args()
    if options.against is None:
        compare(options.network)
    else:
        against(options.against)


if __name__ == "__main__":
    main()
