"""Measures how the time of the capture and of fx_onnx's stages grows with the number of layers.

    python -m benchmarks.scaling --layers 16 64 256 1024 --dynamic

Each layer is a pre-norm Transformer layer of tiny sizes, so that the number of nodes decides the time. "growth" is the
time of fx_onnx for each layer, relative to the first row: 1 is linear. Seconds are CPU time, the best of the rounds.
"""

import argparse
import gc
import logging
import time
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

import fx_onnx

WIDTH, HEADS = 16, 2
HEADER = ("layers", "FX nodes", "capture s", "own s", "own / capture", "growth")


class Layer(nn.Module):
    """Attention and a gated feed-forward, each with a norm before it and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.gate, self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        pieces = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        q, k, v = (piece.view(batch, length, HEADS, -1).transpose(1, 2) for piece in pieces)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        h = self.norms[1](x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def measure(layers: int, dynamic: bool, rounds: int) -> tuple[int, float, float]:
    """Returns the number of FX nodes, the seconds of the capture, and the seconds of all other stages."""
    model, x = nn.Sequential(*(Layer() for _ in range(layers))).eval(), torch.randn(2, 8, WIDTH)
    shapes: Any = ({0: Dim.AUTO, 1: Dim.AUTO},) if dynamic else None
    nodes, seconds = 0, []
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        captured = torch.export.export(model, (x,), dynamic_shapes=shapes, strict=False)
        middle = time.process_time()
        fx_onnx.export(captured, verbose=False)
        seconds.append((middle - start, time.process_time() - middle))
        nodes = len(captured.graph.nodes)
        del captured
    capture, own = map(min, zip(*seconds, strict=True))
    return nodes, capture, own


def parse_arguments() -> argparse.Namespace:
    """Returns the parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[16, 64, 256], help="up to 4096, if you have the time")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--dynamic", action="store_true", help="keep batch and length symbolic")
    return parser.parse_args()


def main() -> None:
    """Prints a Markdown table."""
    options = parse_arguments()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    measure(1, options.dynamic, 1)  # an untimed run imports modules and fills caches
    print(f"torch {torch.__version__}, {'dynamic' if options.dynamic else 'static'} shapes, best of {options.rounds}\n")
    print("| " + " | ".join(HEADER) + " |")
    print("|" + "---|" * len(HEADER), flush=True)
    first = None
    for layers in options.layers:
        nodes, capture, own = measure(layers, options.dynamic, options.rounds)
        first = first or own / layers
        row = [str(layers), str(nodes), f"{capture:.2f}", f"{own:.2f}", f"{own / capture:.2f}"]
        print("| " + " | ".join([*row, f"{own / layers / first:.2f}"]) + " |", flush=True)


if __name__ == "__main__":
    main()
