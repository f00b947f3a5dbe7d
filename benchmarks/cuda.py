"""Runs networks in ONNX Runtime's CUDA provider: right or not, and the time of a call, next to PyTorch.

    python -m benchmarks.cuda [--networks bert,llama,resnet] [--dtypes float16,bfloat16] [--opsets 18,23] [--rounds 50]
    python -m benchmarks.cuda --dry-run

It needs a GPU, onnxruntime-gpu and a PyTorch with CUDA. Inputs and outputs are on the GPU.
Times are medians in ms after 5 calls, with and without CUDA graphs (the provider's ``enable_cuda_graph``,
``torch.compile(mode="reduce-overhead")``). An error is the largest difference from eager PyTorch in float32, relative
to the largest number of the output. "copies" counts what the CPU computes and a kernel of the GPU reads; with any, ONNX
Runtime captures no CUDA graph. ``--dry-run`` runs small networks in float32 in the CPU provider.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnx_ir as ir
import onnxruntime as ort
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

import fx_onnx
from benchmarks.runtimes import tensors
from fx_onnx.program.input_binding import bind

_WARMUP = 5
_SETTINGS = {  # the inputs that a kernel of the CUDA provider reads on the CPU: sizes, axes and positions
    "Reshape": {1}, "Expand": {1}, "Tile": {1}, "ConstantOfShape": {0}, "Range": {0, 1, 2}, "Slice": {1, 2, 3, 4},
    "Pad": {1, 3}, "Squeeze": {1}, "Unsqueeze": {1}, "Split": {1}, "ReduceSum": {1}, "TopK": {1}, "Resize": {1, 2, 3},
}  # fmt: skip
_HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def copies(model: ir.Model) -> list[str]:
    """Returns the results that the CPU computes and a kernel of the GPU reads, by the rule of ONNX Runtime.

    A node runs on the CPU if the CPU has all that it reads, which begins with the results of Shape and Size, and none
    of it is a constant of 16 bits.
    """
    on_cpu: set[ir.Value | None] = set()
    found = []
    for node in model.graph:
        read = [value for value in node.inputs if value is not None]
        computed = [value for value in read if not value.is_initializer()]
        is_half = any(value.dtype in _HALF for value in read)
        if node.op_type in ("Shape", "Size") or (computed and on_cpu.issuperset(computed) and not is_half):
            on_cpu.update(node.outputs)
            continue
        settings = _SETTINGS.get(node.op_type, set())
        found += [
            str(value.name)
            for index, value in enumerate(node.inputs)
            if value is not None and value in on_cpu and index not in settings
        ]
    return found


class Case(NamedTuple):
    """A network with its arguments and their dynamic dims."""

    name: str
    module: nn.Module
    arguments: dict[str, Any]
    dynamic: Any = None


def cases(names: Sequence[str], *, small: bool) -> Iterator[Case]:
    """Yields the cases of the networks."""
    if "bert" in names:
        yield from _bert(small)
    if "llama" in names:
        yield from _llama(small)
    if "resnet" in names:
        from tests.torchvision_cpu import torchvision

        size = 64 if small else 224
        make = torchvision.models.resnet18 if small else torchvision.models.resnet50
        yield Case("ResNet-50, 32 images", make().eval(), {"x": torch.randn(2 if small else 32, 3, size, size)})


def _bert(small: bool) -> Iterator[Case]:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertModel(BertConfig(**sizes if small else {})).eval()
    for batch in (1, 8):
        ids = torch.randint(1, 30000, (batch, 128))
        yield Case(f"BERT-base, {batch} x 128", model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})


def _llama(small: bool) -> Iterator[Case]:
    """Yields one token after 512, with static sizes and with dynamic ones.

    The mask has four axes and the positions are an input, so no node computes them from sizes.
    """
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    width, layers, past = (128, 1, 8) if small else (2048, 12, 512)
    sizes = {"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers}
    config = LlamaConfig(**sizes, num_attention_heads=width // 64, num_key_value_heads=2, vocab_size=32000)
    model, cache = LlamaForCausalLM(config).eval(), DynamicCache()
    for layer in range(layers):
        cache.update(*torch.randn(2, 1, 2, past, 64), layer)
    arguments = {
        "input_ids": torch.ones(1, 1, dtype=torch.int64),
        "attention_mask": torch.ones(1, 1, 1, past + 1, dtype=torch.bool),
        "position_ids": torch.full((1, 1), past),
        "past_key_values": cache,
    }
    dynamic = {
        "input_ids": {0: "batch"},
        "attention_mask": {0: "batch", 3: "total"},
        "position_ids": {0: "batch"},
        "past_key_values": [[{0: "batch", 2: "past"}] * 2] * layers,
    }
    yield Case("Llama, a token after 512", model, arguments)
    yield Case("the same, dynamic", model, arguments, dynamic)


class Row(NamedTuple):
    """One way to run a case: the error, the time in ms, and how many results are copied; None where none is told."""

    case: str
    way: str
    error: float
    ms: float
    copied: int | None = None


def _timed(call: Callable[[Any], Any], make: Callable[[], Any], rounds: int, device: str) -> float:
    """Returns the median time in ms of a call with what ``make`` returns, which is not timed."""
    seconds = []
    for turn in range(_WARMUP + rounds):
        given = make()
        start = time.perf_counter()
        call(given)
        if device == "cuda":
            torch.cuda.synchronize()
        if turn >= _WARMUP:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) * 1e3


def difference(wanted: Sequence[Tensor], computed: Sequence[Tensor]) -> float:
    """Returns the largest difference, relative to the largest number of its output."""
    pairs = zip(wanted, computed, strict=True)
    return max(float((x - y.to(x)).abs().max() / x.abs().max().clamp(min=1e-6)) for x, y in pairs if x.numel())


def rows(case: Case, dtype: torch.dtype, opsets: Sequence[int], rounds: int, device: str) -> Iterator[Row]:
    """Yields the rows of a case: eager PyTorch, torch.compile on a GPU, and the files with and without a CUDA graph."""

    def moved(tensor: Tensor, to: torch.dtype) -> Tensor:
        return tensor.to(device, to) if tensor.is_floating_point() else tensor.to(device)

    def fresh() -> dict[str, Any]:
        return copy.deepcopy(given)  # because the cache grows in a call

    exact = tree_map_only(Tensor, lambda x: moved(x, torch.float32), case.arguments)
    given = tree_map_only(Tensor, lambda x: moved(x, dtype), case.arguments)
    with torch.no_grad():
        wanted = tensors(copy.deepcopy(case.module).to(device)(**copy.deepcopy(exact)))
        module = copy.deepcopy(case.module).to(device, dtype)
        ways = {"PyTorch, eager": module}
        if device == "cuda":
            ways["torch.compile, reduce-overhead"] = torch.compile(module, mode="reduce-overhead")
        for way, run in ways.items():
            error = difference(wanted, tensors(run(**fresh())))
            yield Row(case.name, way, error, _timed(lambda given, run=run: run(**given), fresh, rounds, device))
    for opset in opsets:
        with tempfile.TemporaryDirectory() as folder:
            program = fx_onnx.export(
                module, kwargs=fresh(), dynamic_shapes=case.dynamic, target="onnxruntime-cuda",
                opset_version=opset, verbose=False,
            )  # fmt: skip
            file, copied = Path(folder) / "model.onnx", len(copies(program.model))
            program.save(file, external_data=True)
            feed = bind(program.model.graph, program.exported_program, (), fresh())
            for has_graph in (False, True) if device == "cuda" and not copied else (False,):
                outputs, call = _bound(file, program.model, feed, wanted, device, has_graph=has_graph)
                ms = _timed(lambda _, call=call: call(), lambda: None, rounds, device)
                way = f"fx_onnx, opset {opset}{', CUDA graph' * has_graph}"
                yield Row(case.name, way, difference(wanted, outputs), ms, copied)


def _bound(
    file: Path, model: ir.Model, feed: dict[str, Tensor], shaped: Sequence[Tensor], device: str, *, has_graph: bool
) -> tuple[list[Tensor], Callable[[], None]]:
    """Returns the tensors of the results, and what runs the session on tensors that stay where they are."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    settings = {"enable_cuda_graph": "1" if has_graph else "0", "use_tf32": "0"}
    gpu = [("CUDAExecutionProvider", settings)] if device == "cuda" else []
    session = ort.InferenceSession(file, options, providers=[*gpu, "CPUExecutionProvider"])
    binding = session.io_binding()
    inputs = {name: x.contiguous() for name, x in feed.items()}
    outputs = [
        torch.empty(
            x.shape, dtype=getattr(torch, _TORCH.get(value.dtype.name, value.dtype.name.lower())), device=device
        )
        for x, value in zip(shaped, model.graph.outputs, strict=True)
    ]
    for value in session.get_inputs():
        x = inputs[value.name]
        binding.bind_input(value.name, device, 0, _number(model.graph.inputs, value.name), x.shape, x.data_ptr())
    for value, x in zip(session.get_outputs(), outputs, strict=True):
        binding.bind_output(value.name, device, 0, _number(model.graph.outputs, value.name), x.shape, x.data_ptr())

    def call() -> None:
        assert inputs  # the session reads their memory
        session.run_with_iobinding(binding)

    call()
    return outputs, call


_TORCH = {"FLOAT": "float32", "DOUBLE": "float64"}


def _number(values: Sequence[ir.Value], name: str) -> int:
    """Returns the number that ONNX has for the dtype of a value."""
    return next(int(value.dtype) for value in values if value.name == name and value.dtype is not None)


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="bert,llama,resnet")
    parser.add_argument("--dtypes", default="float16,bfloat16")
    parser.add_argument("--opsets", default="18,23")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    if not given.dry_run and "CUDAExecutionProvider" not in ort.get_available_providers():
        raise SystemExit("ONNX Runtime has no CUDA provider here; --dry-run runs small networks on the CPU.")
    device = "cpu" if given.dry_run else "cuda"
    gpu = "the CPU" if given.dry_run else torch.cuda.get_device_name()
    print(f"ONNX Runtime {ort.__version__}, PyTorch {torch.__version__}, {gpu}\n")
    print("| network | dtype | way | error | ms | copies |\n|---|---|---|---|---|---|", flush=True)
    dtypes, opsets = ["float32"] if given.dry_run else given.dtypes.split(","), list(map(int, given.opsets.split(",")))
    for case in cases(given.networks.split(","), small=given.dry_run):
        for dtype in dtypes:
            for row in rows(case, getattr(torch, dtype), opsets, 1 if given.dry_run else given.rounds, device):
                copied = "" if row.copied is None else row.copied
                print(f"| {row.case} | {dtype} | {row.way} | {row.error:.1e} | {row.ms:.2f} | {copied} |", flush=True)


if __name__ == "__main__":
    main()
