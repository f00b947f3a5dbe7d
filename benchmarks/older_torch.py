"""Exports programs that an older torch saved; docs/older_torch.md tells the results.

    python benchmarks/older_torch.py save FOLDER      # with the older torch, without fx_onnx
    python -m benchmarks.older_torch export FOLDER    # with fx_onnx

``save`` writes each program of torch.export beside its results. ``export`` compares the results of the ONNX model with
them, and with the program at other sizes. torchvision, timm and transformers are used where they are installed.
"""

# ruff: noqa: D103  the name of a function is that of its model
from __future__ import annotations

import argparse
import copy
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.utils import _pytree as pytree

MODELS: dict[str, Callable[[], tuple[Any, ...]]] = {}
"""Name → function that returns a module, its arguments, their dynamic dims, and maybe keyword arguments."""


def model(function: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
    MODELS[function.__name__.replace("_", " ")] = function
    return function


class Call(nn.Module):
    """Calls a function with layers."""

    def __init__(self, function: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor, *others: Any) -> Any:
        return self.function(self, x, *others)


@model
def perceptron() -> tuple[Any, ...]:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3)), (torch.randn(4, 8),), ({0: Dim("b")},)


@model
def convolutions() -> tuple[Any, ...]:
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    dims = {0: Dim("b"), 2: Dim("height", min=4), 3: Dim("width", min=4)}
    return nn.Sequential(*layers, nn.Linear(8, 5)), (torch.randn(2, 3, 16, 16),), (dims,)


@model
def transformer_encoder() -> tuple[Any, ...]:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 2), (torch.randn(2, 7, 32),), ({0: Dim("b"), 1: Dim("sequence")},)


@model
def LSTM_with_a_written_buffer() -> tuple[Any, ...]:
    def forward(self: Any, x: Tensor) -> Tensor:
        self.count += 1
        return self.lstm(x)[0] + self.count

    return Call(forward, lstm=nn.LSTM(8, 16, 2, batch_first=True)), (torch.randn(2, 5, 8),), None


@model
def bidirectional_GRU() -> tuple[Any, ...]:
    gru = nn.GRU(8, 16, bidirectional=True)
    return Call(lambda self, x: self.gru(x), gru=gru), (torch.randn(5, 2, 8),), None


@model
def branch() -> tuple[Any, ...]:
    def forward(_: Any, x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() * 2, (x,))

    return Call(forward), (torch.randn(3, 4),), None


@model
def sizes_from_data() -> tuple[Any, ...]:
    return Call(lambda _, x: (x[x[:, 0] > 0] * 2, torch.nonzero(x))), (torch.randn(6, 4),), None


@model
def causal_attention() -> tuple[Any, ...]:
    def forward(_: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return Call(forward), tuple(torch.randn(2, 4, 6, 8) for _ in range(3)), None


@model
def writes_into_views() -> tuple[Any, ...]:
    def forward(_: Any, x: Tensor) -> Tensor:
        y = x.clone()
        y[:, 0] = 1
        y.relu_()
        y[y > 1] = 0
        return y

    return Call(forward), (torch.randn(3, 4),), None


@model
def written_input() -> tuple[Any, ...]:
    return Call(lambda _, x: x.add_(1) * 2), (torch.randn(3, 4),), None


@model
def custom_operator() -> tuple[Any, ...]:
    return Call(lambda _, x: torch.ops.older_torch.twice(x) + 1), (torch.randn(3, 4),), None


@torch.library.custom_op("older_torch::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


twice.register_fake(torch.empty_like)


@model
def running_sums_and_flips() -> tuple[Any, ...]:
    return Call(lambda _, x: torch.where(x > 0, x.cumsum(1), x.flip(1))), (torch.randn(3, 4),), None


@model
def resize() -> tuple[Any, ...]:
    def forward(_: Any, x: Tensor) -> Tensor:
        return nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)

    return Call(forward), (torch.randn(1, 3, 8, 8),), None


@model
def embedding_and_norm() -> tuple[Any, ...]:
    layers = {"embed": nn.Embedding(100, 16), "norm": nn.LayerNorm(16)}
    return Call(lambda self, x: self.norm(self.embed(x)).mean(1), **layers), (torch.randint(0, 100, (2, 7)),), None


@model
def float16() -> tuple[Any, ...]:
    return nn.Linear(8, 8).half(), (torch.randn(3, 8).half(),), None


@model
def Fourier_transform() -> tuple[Any, ...]:
    return Call(lambda _, x: torch.fft.irfft(torch.fft.rfft(x) * 2).abs()), (torch.randn(3, 16),), None


@model
def related_dims() -> tuple[Any, ...]:
    batch = Dim("batch")
    call = Call(lambda _, x, y: torch.cat([x, y], 0).view(-1, 2, 2))
    return call, (torch.randn(3, 4), torch.randn(6, 4)), {"x": {0: batch}, "others": ({0: 2 * batch},)}


@model
def detection_head() -> tuple[Any, ...]:
    def forward(self: Any, x: Tensor) -> Tensor:
        batch, _, height, width = x.shape
        y = self.conv(x).view(batch, 3, 85, height, width).permute(0, 1, 3, 4, 2).sigmoid()
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        centers = (y[..., :2] * 2 - 0.5 + torch.stack((columns, rows), -1)) * 8
        return torch.cat([centers, y[..., 2:]], -1).view(batch, -1, 85)

    return Call(forward, conv=nn.Conv2d(16, 3 * 85, 1)), (torch.randn(1, 16, 8, 8),), None


@model
def tied_weights() -> tuple[Any, ...]:
    first, second = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
    second.weight = first.weight
    call = Call(lambda self, x: self.second(self.first(x).relu()), first=first, second=second)
    return call, (torch.randn(3, 8),), None


@model
def autocast_region() -> tuple[Any, ...]:
    def forward(self: Any, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        return y.float() + 1

    return Call(forward, linear=nn.Linear(8, 8)), (torch.randn(3, 8),), None


@model
def no_grad_region() -> tuple[Any, ...]:
    def forward(_: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            y = x.sin()
        return y * x

    return Call(forward), (torch.randn(3, 8),), None


@model
def BERT() -> tuple[Any, ...]:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    bert = BertModel(BertConfig(**sizes, vocab_size=200))
    call = Call(lambda self, ids, mask: self.bert(ids, mask, return_dict=False), bert=bert)
    return call, (torch.randint(0, 200, (2, 7)), torch.ones(2, 7, dtype=torch.long)), None


@model
def Llama_with_a_cache() -> tuple[Any, ...]:
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    llama = LlamaForCausalLM(LlamaConfig(**sizes, intermediate_size=128, vocab_size=200))

    def forward(self: Any, ids: Tensor, mask: Tensor, past: Any) -> Any:
        cache = DynamicCache.from_legacy_cache(past)
        result = self.llama(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True)
        return result.logits, result.past_key_values.to_legacy_cache()

    past = tuple((torch.randn(2, 2, 5, 16), torch.randn(2, 2, 5, 16)) for _ in range(2))
    arguments = (torch.randint(0, 200, (2, 3)), torch.ones(2, 8, dtype=torch.long), past)
    return Call(forward, llama=llama), arguments, None


@model
def Whisper() -> tuple[Any, ...]:
    from transformers import WhisperConfig, WhisperModel

    layers = {f"{side}_{kind}": number for side in ("encoder", "decoder")
              for kind, number in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 128))}  # fmt: skip
    tokens = {"vocab_size": 200, "decoder_start_token_id": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    whisper = WhisperModel(WhisperConfig(d_model=64, max_source_positions=50, **layers, **tokens))

    def forward(self: Any, features: Tensor, ids: Tensor) -> Any:
        return self.whisper(features, decoder_input_ids=ids, use_cache=False, return_dict=False)[0]

    return Call(forward, whisper=whisper), (torch.randn(2, 80, 100), torch.randint(0, 200, (2, 4))), None


def of_package(package: str, name: str, size: int) -> None:
    """Adds a model of torchvision or timm."""

    def build() -> tuple[Any, ...]:
        models = __import__(f"{package}.models" if package == "torchvision" else package, fromlist=["models"])
        built = models.get_model(name, weights=None) if package == "torchvision" else models.create_model(name)
        return built, (torch.randn(2, 3, size, size),), ({0: Dim("b")},)

    MODELS[f"{name} of {package}"] = build


for _name, _size in {"resnet18": 64, "mobilenet_v3_small": 64, "efficientnet_b0": 64, "convnext_tiny": 64,
                     "vit_b_16": 224, "swin_t": 64}.items():  # fmt: skip
    of_package("torchvision", _name, _size)
for _name in ("resnet10t", "vit_tiny_patch16_224", "mobilenetv4_conv_small"):
    of_package("timm", _name, 224)


def automatic(args: tuple[Any, ...]) -> dict[str, Any]:
    """Returns Dim.AUTO for each axis of the arguments of a ``Call``."""
    first, *others = pytree.tree_map(lambda x: dict.fromkeys(range(x.dim()), Dim.AUTO), args)
    return {"x": first, **({"others": tuple(others)} if others else {})}


def save(folder: Path) -> None:
    """Saves each program and the results of its module."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "torch.json").write_text(json.dumps(torch.__version__))
    for name, build in MODELS.items():
        torch.manual_seed(0)
        try:
            module, args, dims = build()
            module.eval()
            dims = automatic(args) if isinstance(module, Call) and dims is None else dims
            with torch.no_grad():
                results = pytree.tree_leaves(copy.deepcopy(module)(*copy.deepcopy(args)))
            program = torch.export.export(module, copy.deepcopy(args), dynamic_shapes=dims, strict=False)
            torch.export.save(program, folder / f"{name}.pt2")
            torch.save([result.clone() for result in results], folder / f"{name}.results")
        except Exception as error:  # a package that is not installed, or a model that this torch does not capture
            (folder / f"{name}.pt2").unlink(missing_ok=True)
            print(f"{name}: not saved: {type(error).__name__}: {str(error).partition(chr(10))[0]}")


def export(folder: Path) -> None:
    """Exports each saved program and prints a row of the table."""
    import fx_onnx

    table = {torch.ops.older_torch.twice.default: lambda op, x: op.Add(x, x)}
    print("| program | largest difference | dynamic dims |\n|---|---|---|")
    for path in sorted(folder.glob("*.pt2"), key=lambda path: path.stem.lower()):
        expected = torch.load(path.with_suffix(".results"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = fx_onnx.export(path, custom_translation_table=table, verify=True)
        args, kwargs = program.exported_program.example_inputs
        results = [leaf for leaf in pytree.tree_leaves(program(*args, **kwargs)) if isinstance(leaf, Tensor)]
        pairs = list(zip(results, expected, strict=False))  # a written input is one more result
        worst = max(float((a.double() - b.double()).abs().max()) for a, b in pairs if a.numel())
        print(f"| {path.stem} | {worst:.0e} | {', '.join(str(program.dims).splitlines())} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("save", "export"))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    {"save": save, "export": export}[arguments.step](arguments.folder)
    sys.exit(0)
