"""Compares the passes of fx_onnx with those of onnx_ir and onnxscript that do the same work: time and results.

    python -m benchmarks.passes [NETWORK]

NETWORK is a name of ``tests/models/registry.py``; the default is bert. Each pass runs on a fresh copy of the network as
it is before optimization, so that every pass finds work. Times are process time in milliseconds, the best of ten runs
without garbage collection. The counts are nodes and initializers after the pass.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import onnxscript.optimizer
from onnx_ir.passes import common

import fx_onnx
from fx_onnx.passes.cleanup.common_subexpressions import EliminateCommonSubexpressions
from fx_onnx.passes.cleanup.constant_evaluation import EvaluateConstants
from fx_onnx.passes.cleanup.dead_code import EliminateDeadCode
from fx_onnx.passes.cleanup.identities import eliminate_identities
from fx_onnx.passes.optimize import optimize
from tests.models.registry import CASES

RUNS = 10

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


def main(name: str) -> None:
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


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "bert")
