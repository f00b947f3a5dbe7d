"""Exports the models of torchvision and compares the results with eager on two images.

    python -m benchmarks.vision [--limit SECONDS] [--results FILE] [name or kind ...]

Each model has random weights and runs in a separate process with a time limit. With `--results`, a
run continues where an earlier one ended.
"""

import argparse
import logging
import sys
from collections import Counter
from pathlib import Path

import torch

import fx_onnx
from benchmarks.families import OURS, RIGHT, Results
from tests.models.vision import VISION


def main() -> int:
    """Prints a line for each model, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each model")
    parser.add_argument("--results", type=Path, help="a file of results; models that it contains are not run again")
    options = parser.parse_args()
    logging.getLogger("torch").setLevel(logging.CRITICAL)  # torch prints the whole graph of a failed capture
    fx_onnx.export(torch.nn.Identity().eval(), torch.ones(1))  # imported once, before the processes fork
    results = Results(options.results)
    counts: Counter[str] = Counter()
    for model in VISION:
        if options.names and not {model.name, model.kind}.intersection(options.names):
            continue
        found = results.get(OURS, model, options.limit)
        print(f"{model.name:40} {model.kind:14} {found.kind:20} {found.seconds:6.1f} {found.nodes:6}", flush=True)
        if found.kind != RIGHT:
            print(f"    {found.text}", flush=True)
        counts[found.kind] += 1
    print(", ".join(f"{text} {count}" for text, count in counts.most_common()))
    return 0 if counts.total() == counts[RIGHT] else 1


if __name__ == "__main__":
    sys.exit(main())
