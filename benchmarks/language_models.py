"""Compares the speed of a Llama with a cache: exports at several opsets, torch eager, and onnxruntime-genai's builder.

    python -m benchmarks.language_models --opsets 20 23 24 --pasts 128 1024 --rounds 30
    python -m benchmarks.language_models --builder /path/to/python   # of an environment with onnxruntime-genai

The model has random weights. "decode" is one token after a past, "prefill" is a prompt without a past, both for a batch
of 1. Times are CPU times of interleaved runs: the median, and in brackets the quartiles. All sessions write their
results into buffers that are allocated once. The builder's graph reads and writes one buffer for each layer's keys and
values, as onnxruntime-genai runs it. "memory" is by how much the peak memory of a process grows when it loads the model
and runs the prefill.
"""

import argparse
import logging
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
import transformers

import fx_onnx
from tests.compare import assert_close

SHAPES = {
    "input_ids": {0: "batch", 1: "sequence"},
    "attention_mask": {0: "batch", 1: "total"},
    "position_ids": {0: "batch", 1: "sequence"},
    "past_key_values": {0: "batch", 2: "past"},
}
Run = Callable[[], Any]


def configuration(options: argparse.Namespace) -> Any:
    """Returns the configuration of the model: 16 query heads share 4 key heads."""
    return transformers.LlamaConfig(
        vocab_size=8000,
        hidden_size=options.width,
        intermediate_size=options.width * 11 // 4,
        num_hidden_layers=options.layers,
        num_attention_heads=16,
        num_key_value_heads=4,
        max_position_embeddings=4096,
    )


def arguments(config: Any, length: int, past: int, batch: int = 1) -> dict[str, Any]:
    """Returns the keyword arguments of a forward: new tokens after a past."""
    generator = torch.Generator().manual_seed(past)
    cache = transformers.DynamicCache(config=config)
    for layer in range(config.num_hidden_layers):
        sizes = batch, config.num_key_value_heads, past, config.hidden_size // config.num_attention_heads
        cache.update(torch.randn(sizes, generator=generator), torch.randn(sizes, generator=generator), layer)
    ids = torch.randint(config.vocab_size, (batch, length), generator=generator)
    mask = torch.ones(batch, past + length, dtype=torch.int64)
    places = torch.arange(past, past + length).expand(batch, -1).contiguous()
    return {"input_ids": ids, "attention_mask": mask, "position_ids": places, "past_key_values": cache}


def exported(model: Any, folder: Path, **keywords: Any) -> Path:
    """Exports the model with a cache and returns the path of the file. A file of an earlier run is used again."""
    if (folder / "model.onnx").exists():
        return folder / "model.onnx"
    example = arguments(model.config, 3, 5, batch=2)
    program = fx_onnx.export(model, (), kwargs=example, dynamic_shapes=SHAPES, **keywords)
    folder.mkdir(exist_ok=True)
    program.save(folder / "model.onnx", external_data=True)
    return folder / "model.onnx"


def built(model: Any, python: str, precision: str, folder: Path) -> Path:
    """Returns the path of the graph of onnxruntime-genai's model builder, built now or by an earlier run."""
    if (folder / "model.onnx").exists():
        return folder / "model.onnx"
    model.save_pretrained(folder / "weights")
    words = {f"w{number}": number for number in range(model.config.vocab_size)}
    tokenizer = transformers.TokenizersBackend(tokenizer_object=_tokenizer(words), eos_token="w2", unk_token="w0")
    tokenizer.save_pretrained(folder / "weights")
    # `tests` makes torchvision importable, which the builder needs, where its library does not load.
    script = "import tests, runpy; runpy.run_module('onnxruntime_genai.models.builder', None, '__main__')"
    folder.mkdir(exist_ok=True)
    flags = ["-i", folder / "weights", "-o", folder, "-p", precision, "-e", "cpu", "-c", folder / "cache"]
    subprocess.run([python, "-c", script, *flags], check=True, capture_output=True)
    return folder / "model.onnx"


def _tokenizer(words: dict[str, int]) -> Any:
    import tokenizers

    return tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))


def session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    """Returns a session on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def bound(runner: onnxruntime.InferenceSession, example: dict[str, Any]) -> tuple[Run, Callable[[], np.ndarray]]:
    """Returns a function that runs the session on the arguments, and one that returns the logits of the last run."""
    past, length = example["past_key_values"].get_seq_length(), example["input_ids"].shape[1]
    cache = _cache_arrays(example["past_key_values"])
    binding = runner.io_binding()
    shares = "GroupQueryAttention" in _operators(runner)
    values: dict[str, onnxruntime.OrtValue] = {}
    for each in runner.get_inputs():
        number = [part for part in each.name.split(".") if part.isdigit()]
        array = cache[int(number[0])]["value" in each.name.split(".")[-1]] if number else example[each.name].numpy()
        if number and shares:
            array = np.concatenate([array, np.zeros((*array.shape[:2], length, array.shape[3]), array.dtype)], 2)
        values[each.name] = onnxruntime.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(each.name, values[each.name])
    for each in runner.get_outputs():
        past_name = each.name.replace("present.", "past_key_values.").removesuffix("_out")
        if past_name in values and shares:
            result = values[past_name]
        elif past_name in values:
            sizes = values[past_name].shape()
            result = _empty([*sizes[:2], past + length, sizes[3]])
        else:
            result = _empty([*example["input_ids"].shape, runner.get_outputs()[0].shape[-1]])
        values[each.name] = result
        binding.bind_ortvalue_output(each.name, result)
    logits = values[runner.get_outputs()[0].name]
    return lambda: runner.run_with_iobinding(binding), logits.numpy


def _cache_arrays(cache: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(layer.keys.numpy(), layer.values.numpy()) for layer in cache.layers]


def _empty(sizes: list[int]) -> onnxruntime.OrtValue:
    return onnxruntime.OrtValue.ortvalue_from_shape_and_type(sizes, np.float32)


def _operators(runner: onnxruntime.InferenceSession) -> set[str]:
    path = Path(runner._model_path)
    return {node.op_type for node in onnx.load(path, load_external_data=False).graph.node}


def eager(model: Any, example: dict[str, Any]) -> Run:
    """Returns a function that runs the module and removes the new tokens from the cache."""
    past = example["past_key_values"].get_seq_length()

    def run() -> None:
        with torch.no_grad():
            cache = example["past_key_values"] if past else transformers.DynamicCache(config=model.config)
            model(**{**example, "past_key_values": cache})
            if past:
                cache.crop(past - cache.get_seq_length())

    return run


def timed(runs: dict[str, Run], rounds: int) -> dict[str, str]:
    """Returns the median milliseconds and the quartiles of each run, in interleaved order after an untimed round."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name in list(runs)[:: -1 if turn % 2 else 1]:
            start = time.process_time()
            runs[name]()
            if turn:
                seconds[name].append((time.process_time() - start) * 1e3)
    first = statistics.median(next(iter(seconds.values())))
    cells = {}
    for name, each in seconds.items():
        low, middle, high = statistics.quantiles(each, n=4)
        cells[name] = f"{middle:.1f} [{low:.1f}, {high:.1f}] {middle / first:.2f}"
    return cells


def peak_memory(path: Path, config: Any, prompt: int) -> None:
    """Prints by how many MB the peak memory of this process grows when it loads the model and runs a prefill."""
    example = arguments(config, prompt, 0)
    before = _peak()
    run, _ = bound(session(path, 1), example)
    run()
    print((_peak() - before) // 1024)


def _peak() -> int:
    """Returns the peak memory of this process in KB. ru_maxrss would include that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0])


def rows(model: Any, paths: dict[str, Path], options: argparse.Namespace) -> dict[str, list[str]]:
    """Returns the cells of each variant: nodes, decode after each past, prefill."""
    runners = {name: session(path, options.threads) for name, path in paths.items()}
    cells = {name: [str(len(onnx.load(path, load_external_data=False).graph.node))] for name, path in paths.items()}
    cells["torch eager"] = [""]
    for length, past, rounds in (*((1, past, options.rounds) for past in options.pasts), (options.prompt, 0, 6)):
        example = arguments(model.config, length, past)
        want = model(**arguments(model.config, length, past)).logits.detach()
        runs: dict[str, Run] = {}
        for name, runner in runners.items():
            runs[name], logits = bound(runner, example)
            runs[name]()
            if "int4" not in name:
                assert_close(torch.from_numpy(logits()), want, 1e-3)
        runs["torch eager"] = eager(model, example)
        for name, cell in timed(runs, rounds).items():
            cells[name].append(cell)
    return cells


def main() -> None:
    """Prints a Markdown table. A ratio is to the time of the first row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--opsets", nargs="+", type=int, default=[20, 23, 24])
    parser.add_argument("--targets", nargs="*", default=[])
    parser.add_argument("--pasts", nargs="+", type=int, default=[128, 1024])
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--builder", help="a Python interpreter that has onnxruntime-genai")
    parser.add_argument("--folder", type=Path, help="keeps the exported models for later runs")
    parser.add_argument("--memory-of", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(options.threads)
    if options.memory_of:
        peak_memory(options.memory_of, configuration(options), options.prompt)
        return
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(configuration(options)).eval()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = options.folder or Path(temporary)
        paths = {
            f"opset {opset}": exported(model, folder / str(opset), opset_version=opset) for opset in options.opsets
        }
        for target in options.targets:
            paths[f"target {target}"] = exported(model, folder / target, target=target)
        if options.builder:
            paths["builder"] = built(model, options.builder, "fp32", folder / "builder")
        cells = rows(model, paths, options)
        script = [sys.executable, "-m", "benchmarks.language_models", *sys.argv[1:], "--memory-of"]
        for name, path in paths.items():
            cells[name].append(
                subprocess.run([*script, path], capture_output=True, check=True, text=True).stdout.strip()
            )
    print(f"Llama of {options.layers} layers, {options.threads} threads, ONNX Runtime {onnxruntime.__version__}\n")
    header = [
        "",
        "nodes",
        *(f"decode at {past}, ms" for past in options.pasts),
        f"prefill {options.prompt}, ms",
        "memory, MB",
    ]
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for name, each in cells.items():
        print("| " + " | ".join([name, *each, *[""] * (len(header) - 1 - len(each))]) + " |")


if __name__ == "__main__":
    main()
