"""Which models of torchvision come out right: captured, exported, loaded, equal to eager on two images.

    python -m benchmarks.vision [--limit SECONDS] [name or kind ...]

Each model has random weights and runs in a process of its own with a time limit.
"""

import argparse
import logging
import sys
import time
from collections import Counter

import torch

import fx_onnx
from benchmarks.families import RIGHT, guarded
from tests.models.vision import VISION


def main() -> int:
    """Prints a line per model, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each model")
    options = parser.parse_args()
    logging.getLogger("torch").setLevel(logging.CRITICAL)  # of a failed capture it prints the whole graph
    fx_onnx.export(torch.nn.Identity().eval(), torch.ones(1))  # what every process then has imported
    counts: Counter[str] = Counter()
    for model in VISION:
        if options.names and not {model.name, model.kind}.intersection(options.names):
            continue
        start = time.perf_counter()
        text = guarded(model, fx_onnx.export, options.limit)
        mark = "pass" if text == RIGHT else "FAIL"
        print(f"{model.name:40} {model.kind:14} {mark} {time.perf_counter() - start:6.1f}", flush=True)
        if text != RIGHT:
            print(f"    {text[:600]}", flush=True)
        counts[text.partition(":")[0]] += 1
    print(", ".join(f"{text} {count}" for text, count in counts.most_common()))
    return 0 if counts.total() == counts[RIGHT] else 1


if __name__ == "__main__":
    sys.exit(main())
