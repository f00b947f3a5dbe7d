"""Counts the nodes of the networks of benchmarks/runtime_models.py that runtimes have kernels for, by their tables.

    python -m benchmarks.kernel_shares [--models bert,gpt2] [--targets onnxruntime-cuda] [--folder build/shares]

Each network is exported with dynamic dims for each target, at the target's opset. The folder keeps the counts, so a run
continues where an earlier one ended. The last lines are the table of docs/runtimes.md. No model is run.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from pathlib import Path

import fx_onnx
from benchmarks.runtime_models import MODELS, Model
from fx_onnx.targets.known_targets import NAMES, find_target

TARGETS = [name for name in NAMES if not find_target(name).executed]


def counts(model: Model, targets: list[str]) -> dict[str, dict[str, object]]:
    """Returns the number of nodes, the operators without a kernel, and the advice for each target."""
    module = model.build()
    inputs = model.examples(module)[0]
    program = fx_onnx.export(
        module, inputs.args, kwargs=inputs.kwargs, dynamic_shapes=model.dynamic_shapes(inputs), verbose=False
    )
    found: dict[str, dict[str, object]] = {}
    for name in targets:
        support = fx_onnx.export(program.exported_program, (), target=name, verbose=False).supports(name)
        missing = Counter(each.operator for each in support.missing)
        found[name] = {"nodes": support.nodes, "missing": missing, "advice": list(support.advice)}
    return found


def main() -> None:
    """Prints the operators without a kernel, then the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default=",".join(model.name for model in MODELS))
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--folder", type=Path, default=Path("build/shares"))
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    targets, total = given.targets.split(","), {}
    given.folder.mkdir(parents=True, exist_ok=True)
    for model in MODELS:
        kept = given.folder / f"{model.name}.json"
        if model.name not in given.models.split(","):
            continue
        found = json.loads(kept.read_text()) if kept.exists() else {}
        left = [name for name in targets if name not in found]
        if left:
            found |= counts(model, left)
            kept.write_text(json.dumps(found))
        total[model.name] = found
        print(model.name, {name: found[name]["missing"] for name in targets if found[name]["missing"]}, flush=True)
    print(f"| target | table | nodes | with a kernel | networks | complete | without |\n|{'---|' * 7}")
    for name in targets:
        rows = [found[name] for found in total.values()]
        nodes, missing = sum(row["nodes"] for row in rows), sum((Counter(row["missing"]) for row in rows), Counter())
        share, whole = 1 - missing.total() / nodes, sum(not row["missing"] for row in rows)
        table = find_target(name).kernels
        version = "" if table is None else f"{table.runtime} {table.version}"
        listed = ", ".join(f"{operator} {count}" for operator, count in missing.most_common())
        print(f"| `{name}` | {version} | {nodes:,} | {share:.1%} | {len(rows)} | {whole} | {listed} |")


if __name__ == "__main__":
    main()
