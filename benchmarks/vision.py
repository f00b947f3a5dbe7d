"""Which models of torchvision come out right: captured, exported, loaded, equal to eager on two images.

    python -m benchmarks.vision [--timm] [--limit SECONDS] [--results FILE] [name or kind ...]

Each model has random weights and runs in a process of its own with a time limit. With `--timm` they are timm's, where
it is installed: one of each of its families. With `--results` a run continues where an earlier one ended.
"""

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn

import fx_onnx
from benchmarks.families import OURS, RIGHT, Results
from tests.models.vision import VISION, VisionModel, calibrate


class TimmModel(VisionModel):
    """A model of timm for images of the size that it was made for."""

    def build(self) -> nn.Module:
        """The module in eval mode, the same at every call."""
        import timm

        torch.manual_seed(0)
        module: nn.Module = timm.create_model(self.name)
        with torch.no_grad():
            calibrate(module, lambda: module(*self.examples(module)[1].values()))
        return module.eval()


def of_timm() -> Iterable[VisionModel]:
    """A model of each family: one made for tests, else the one with the shortest name."""
    import timm

    for family in timm.list_modules():
        names = timm.list_models(module=family)
        if names:
            name = min(names, key=lambda name: (not name.startswith("test_"), len(name), name))
            config = timm.get_pretrained_cfg(name)
            yield TimmModel(name, family, sizes=config.input_size[1:] if config else (224, 224))


def main() -> int:
    """Prints a line per model, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--timm", action="store_true", help="models of timm")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for each model")
    parser.add_argument("--results", type=Path, help="keeps what was found line by line, and what it holds is not run")
    options = parser.parse_args()
    logging.getLogger("torch").setLevel(logging.CRITICAL)  # of a failed capture it prints the whole graph
    fx_onnx.export(torch.nn.Identity().eval(), torch.ones(1))  # what every process then has imported
    results = Results(options.results)
    counts: Counter[str] = Counter()
    for model in of_timm() if options.timm else VISION:
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
