"""Exports a Transformer encoder with dynamic batch and sequence, and compares it with eager at three sizes.

python docs/examples/demo.py [file]
"""

import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

import fx_onnx

VOCABULARY, WIDTH, HEADS, DEPTH, LONGEST = 1000, 256, 8, 4, 512
EXAMPLE, OTHERS = (2, 16), [(1, 5), (7, 40)]


class Encoder(nn.Module):
    """Tokens (batch, sequence), 0 for padding, to hidden states (batch, sequence, width) and their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.positions = nn.Embedding(LONGEST, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        padding = tokens == 0
        embedded = self.words(tokens) + self.positions(torch.arange(tokens.shape[1]))
        hidden = self.encoder(embedded, src_key_padding_mask=padding)
        real = (~padding).unsqueeze(-1)
        return hidden, (hidden * real).sum(1) / real.sum(1)


def tokens(batch: int, sequence: int) -> Tensor:
    """Random tokens, the last of the first row being padding."""
    ids = torch.randint(1, VOCABULARY, (batch, sequence))
    ids[0, -1] = 0
    return ids


def largest_difference(model: nn.Module, program: fx_onnx.ONNXProgram, inputs: Tensor) -> float:
    """Between the module and the program in ONNX Runtime, over all outputs."""
    with torch.no_grad():
        pairs = zip(program(inputs), model(inputs), strict=True)
        return max(float((got - want).abs().max()) for got, want in pairs)


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Two columns."""
    return "\n".join(f"  {left:<24} {right}" for left, right in rows)


def main(path: Path) -> None:
    """Exports, saves, runs, prints."""
    torch.manual_seed(0)
    model = Encoder().eval()
    path.parent.mkdir(parents=True, exist_ok=True)
    program = fx_onnx.export(
        model,
        (tokens(*EXAMPLE),),
        path,
        input_names=["tokens"],
        output_names=["hidden", "mean"],
        dynamic_shapes={"tokens": {0: "batch", 1: "sequence"}},
    )
    graph = program.model.graph
    print(f"A Transformer encoder: {DEPTH} layers, width {WIDTH}, {HEADS} heads")
    print(table((stage, f"{seconds:8.3f} s") for stage, seconds in program.timings.items()))
    print(table([("nodes", str(len(graph))), ("opset", str(graph.opset_imports[""]))]))
    for kind, values in (("input", graph.inputs), ("output", graph.outputs)):
        dims = [(value, ", ".join(str(dim) for dim in value.shape or ())) for value in values]
        print(table((f"{kind} {value.name}", f"{value.dtype} [{text}]") for value, text in dims))
    for size in (EXAMPLE, *OTHERS):
        difference = largest_difference(model, program, tokens(*size))
        print(table([(f"difference at {size[0]} x {size[1]}", f"{difference:.1e} at most, ONNX Runtime from eager")]))
        if difference > 1e-4:
            sys.exit("The program differs from the module.")
    print(f"Saved as {path} ({path.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/encoder.onnx"))
