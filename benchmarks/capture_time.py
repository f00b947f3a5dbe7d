"""Shows where the time of torch.export goes for a deep decoder, and what marks for equal layers change.

    python -m benchmarks.capture_time [--layers 32]

The first table has the cumulative shares of one capture of a Llama of the size of 8B on the meta device in cProfile.
The second has the CPU time of captures of a small Transformer whose layers are regions of
``torch.compiler.nested_compile_region``.
"""

import argparse
import cProfile
import logging
import pstats
import time
import warnings
from typing import Any

import torch
from torch import Tensor, nn

import fx_onnx
from benchmarks.scale import on_meta

PARTS = {
    "fake tensors": ("fake_tensor.py", "dispatch"),
    "- results rebuilt from their cache": ("fake_tensor.py", "_output_from_cache_entry"),
    "- new entries of their cache": ("fake_tensor.py", "_make_cache_entry"),
    "arithmetic on symbolic sizes": ("sym_node.py", "binary_magic_impl"),
    "attention": ("sdpa_attention.py", "sdpa_attention_forward"),
}
"""The name of each part, and the file and the name of its function."""


class Layer(nn.Module):
    """A layer of a Transformer."""

    def __init__(self, size: int = 32) -> None:
        super().__init__()
        self.norm, self.rows = nn.LayerNorm(size), nn.Linear(size, 3 * size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.rows(self.norm(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        heads = nn.functional.scaled_dot_product_attention(*rows.unbind(0), is_causal=True)
        x = x + heads.transpose(1, 2).flatten(2)
        return x + self.down(nn.functional.silu(self.up(x)))


class Stack(nn.Module):
    """Equal layers, each of which is a marked region if ``marked``."""

    def __init__(self, count: int, marked: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(count))
        mark: Any = torch.compiler.nested_compile_region if marked else lambda function: function
        self.step = mark(lambda layer, x: layer(x))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.step(layer, x)
        return x


def profile(layers: int) -> None:
    """Prints the shares of a capture."""
    model = on_meta("llama-8b", layers)
    arguments = fx_onnx.text_generation_arguments(model)
    original, profiler = torch.export.export, cProfile.Profile()
    torch.export.export = lambda *args, **kwargs: profiler.runcall(original, *args, **kwargs)
    try:
        fx_onnx.export(model, **arguments, verbose=False)
    finally:
        torch.export.export = original
    found: dict[tuple[str, str], tuple[float, int]] = {}
    rows: dict[Any, Any] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    total = max(row[3] for row in rows.values())
    for (file, _, name), (_, calls, _, cumulative, _) in rows.items():
        key = file.rpartition("/")[2], name
        found[key] = max(found.get(key, (0.0, 0)), (cumulative, calls))
    print("| part | share | calls |", "|---|---|---|", sep="\n")
    for text, key in PARTS.items():
        cumulative, calls = found[key]
        print(f"| {text} | {cumulative / total:.0%} | {calls} |")


def repeated(strict: bool, marked: bool, count: int) -> str:
    """Returns a row: the time of a capture, the nodes of its graph and the calls of shared graphs."""
    torch.compiler.reset()
    module, x = Stack(count, marked).eval(), torch.randn(2, 6, 32)
    start = time.process_time()
    dims = ({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},)
    program = torch.export.export(module, (x,), dynamic_shapes=dims, strict=strict)
    seconds = time.process_time() - start
    torch.testing.assert_close(program.module()(x), module(x))
    calls = sum(node.target is torch.ops.higher_order.invoke_subgraph for node in program.graph.nodes)
    return f"| {strict} | {marked} | {count} | {seconds:.2f} | {len(program.graph.nodes)} | {calls} |"


def main() -> None:
    """Prints two Markdown tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=32)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    profile(options.layers)
    print("\n| strict | marked | layers | CPU s | nodes | calls of a shared graph |", "|" + "---|" * 6, sep="\n")
    for strict in (False, True):
        for marked in (False, True):
            for count in (4, 16):
                print(repeated(strict, marked, count), flush=True)


if __name__ == "__main__":
    main()
