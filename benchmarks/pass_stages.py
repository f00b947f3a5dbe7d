"""Times the stages of passes of one checkout, the one whose fx_onnx is imported; ``benchmarks.passes`` runs it.

Each line of the standard input is answered by one line of JSON. The name of a network of ``tests/models/registry.py``
exports it up to the passes, and answers with its number of nodes. An empty line runs the stages once on fresh copies,
and answers with the process time of each stage in seconds and the number of nodes after it.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir as ir

import fx_onnx
from fx_onnx import pipeline
from fx_onnx.passes.legalization.legalize import legalize
from fx_onnx.passes.optimize import optimize
from tests.models.registry import CASES

OLD_OPSET = 10
"""The opset to which convert_opset converts, from the oldest native one."""

STAGES: Mapping[str, Callable[[ir.Model], Any]] = {
    "optimize": optimize,
    "legalize": legalize,
    "convert_opset": lambda model: pipeline.convert_opset(model, OLD_OPSET),
}


def translated(name: str, opset: int | None) -> ir.Model:
    """Returns a network as it is before the first pass."""
    case = next(case for case in CASES if case.name == name)
    inputs = case.example()
    found: list[ir.Model] = []
    apply = pipeline.apply

    def record(model: ir.Model, *args: Any) -> ir.Model:
        found.append(model.clone())
        return apply(model, *args)

    pipeline.apply = record
    try:
        options: dict[str, Any] = {"dynamic_shapes": case.dynamic_shapes, "verbose": False, "opset_version": opset}
        fx_onnx.export(case.build(), inputs.args, kwargs=inputs.kwargs, **options, **case.names)
    finally:
        pipeline.apply = apply
    return found[0]


def starts(name: str) -> dict[str, ir.Model]:
    """Returns the model with which each stage begins."""
    model, old = translated(name, None), translated(name, OLD_OPSET)
    return {"optimize": model, "legalize": optimize(model.clone()), "convert_opset": legalize(optimize(old))}


def turn(models: Mapping[str, ir.Model]) -> dict[str, tuple[float, int]]:
    """Runs each stage once, and returns its process time and how many nodes it leaves."""
    found = {}
    for name, stage in STAGES.items():
        copy = models[name].clone()
        gc.collect()
        gc.disable()
        start = time.process_time()
        stage(copy)
        found[name] = time.process_time() - start, sum(1 for _ in copy.graph.all_nodes())
        gc.enable()
    return found


def main() -> None:
    """Answers the lines of the standard input."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    models: dict[str, ir.Model] = {}
    for line in sys.stdin:
        name = line.strip()
        if name:
            models = starts(name)
            gc.collect()
            gc.freeze()  # a collection before a turn looks at what the turn before it left only
        print(json.dumps(len(models["optimize"].graph) if name else turn(models)), flush=True)


if __name__ == "__main__":
    main()
