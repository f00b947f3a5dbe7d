"""Exports networks in several processes, and tells which files differ in a byte: none may.

    python -m benchmarks.equal_bytes [--networks 20] [--seeds 5]

Each process has another hash seed, another number of threads and another order of the exports. The weights are part of
the comparison, so a network whose random weights depend on the number of threads would be listed too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import islice

import torch
from torch import Tensor, nn

import fx_onnx

THREADS = (1, 2, 4, 3, 8)


class FoldedSums(nn.Module):
    """Computes with constants whose sums and products depend on the number of threads that compute them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("values", torch.arange(2**20) * 7919 % 1009 / 1009, persistent=False)
        self.register_buffer("matrix", self.values.reshape(128, -1).clone(), persistent=False)
        self.register_buffer("transposed", self.matrix.T.clone(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(n) to (128, n)."""
        sums = torch.stack([self.values.sum(), self.values.std(), self.values.logsumexp(0), self.values.norm(3)])
        return (self.matrix @ self.transposed).softmax(-1).sum(1, keepdim=True) * x + sums.mean()


def networks() -> Iterator[tuple[str, Callable[[], fx_onnx.ONNXProgram]]]:
    """Yields the name of each network and what exports it with dynamic dims."""
    from tests.models.families import FAMILIES
    from tests.models.registry import CASES

    def case(index: int) -> fx_onnx.ONNXProgram:
        each = CASES[index]
        args, kwargs = each.example()
        return fx_onnx.export(each.build(), args, kwargs=kwargs, dynamic_shapes=each.dynamic_shapes, **each.names)

    def family(index: int) -> fx_onnx.ONNXProgram:
        each = FAMILIES[index]
        torch.manual_seed(0)
        module = each.build()
        inputs = each.examples(module)[0]
        return fx_onnx.export(module, (), kwargs=inputs, dynamic_shapes=each.dynamic_shapes(inputs))

    yield "folded_sums", lambda: fx_onnx.export(FoldedSums().eval(), (torch.ones(3),), dynamic_shapes=({0: "n"},))
    for index, each in enumerate(CASES):
        yield each.name, lambda index=index: case(index)
    for index in range(0, len(FAMILIES), 17):
        yield FAMILIES[index].name, lambda index=index: family(index)


def hashes(count: int, reverse: bool) -> dict[str, str]:
    """Returns the hash of the file of each network."""
    chosen = list(islice(networks(), count))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        programs = ((name, export()) for name, export in (reversed(chosen) if reverse else chosen))
        return {name: hashlib.sha256(program.model_proto.SerializeToString()).hexdigest() for name, program in programs}


def in_a_process(seed: int, count: int) -> dict[str, str]:
    """Returns the hashes that a process with this hash seed finds."""
    settings = {
        "PYTHONHASHSEED": str(seed),
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(THREADS[seed % len(THREADS)])),
    }
    order = ["--reverse"] if seed % 2 else []
    command = [sys.executable, "-m", "benchmarks.equal_bytes", "--one", "--networks", str(count), *order]
    done = subprocess.run(command, env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Prints the networks whose bytes differ, or how many are equal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--networks", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--reverse", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(hashes(options.networks, options.reverse)))
        return 0
    found = [in_a_process(seed, options.networks) for seed in range(options.seeds)]
    different = [name for name in found[0] if len({each[name] for each in found}) > 1]
    for name in different:
        print(f"{name}: {len({each[name] for each in found})} different files")
    print(f"{len(found[0]) - len(different)} of {len(found[0])} networks have equal bytes in {options.seeds} processes")
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
