"""Compares the speed of a Llama with a cache: fx_onnx, other exporters, onnxruntime-genai's model builder, torch eager.

    python -m benchmarks.language_models --folder FOLDER --builder PYTHON --optimum PYTHON

``--builder`` and ``--optimum`` are interpreters of environments with onnxruntime-genai and with optimum-onnx; without
them, these rows are empty. ``FOLDER`` keeps the exported models and the results of each part, so that a run that ends
early, or after ``--seconds``, continues where it was.

The model has random weights. "decode" is one token after a past, "prefill" is a prompt without a past, both for a batch
of 1. Each process loads all models and runs them in turns. A cell has the median time in ms over the processes, and the
ratio to the builder's graph: the median of the ratios of each turn, then the median over the processes, with the
smallest and the largest one. The time is CPU time with one thread, and elapsed time with more. All sessions write their
results into buffers that are allocated once. "memory" is by how much the peak memory of a process grows when it loads
the model and runs the prefill. "difference" is that of the logits from torch's with the same weights, as the root of
the mean squares, for the decode and for the prefill where it is largest.

"products alone" has only the products with weights: the least time that a graph with these kernels can take. Memory is
allocated in pages of 2 MiB where Linux permits it. With pages of 4 KiB, equal graphs differ by up to 6 % in one
process, because of where their weights lie.
"""

import argparse
import json
import logging
import math
import os
import random
import re
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
import transformers

import tests  # noqa: F401  lets torchvision load beside a CPU build of torch
from benchmarks.language_model_exports import EXPORTERS, arguments, loaded, quantize

EAGER = "torch eager"
ROWS = {
    "fp32": (*(name for name in EXPORTERS if not name.endswith(("int4", "int8")) and "level" not in name), EAGER),
    "int4": (
        "target onnxruntime-genai-accuracy-level-4",
        "builder int4",
        "target onnxruntime-genai int4",
        "products alone int4",
        f"{EAGER} int4",
    ),
    "int8": (
        "target onnxruntime-genai-accuracy-level-4 int8",
        "builder int8",
        "target onnxruntime-genai int8",
        f"{EAGER} int8",
    ),
}
REFERENCE = {"fp32": "builder", "int4": "builder int4", "int8": "builder int8"}
LARGEST_DIFFERENCE = {"fp32": 1e-4, "int4": 0.1, "int8": 0.1}
"""Of the logits from torch's; accuracy level 4 rounds the operands of the products."""
Run = Callable[[], Any]
Result = dict[str, dict[str, dict[str, float]]]
"""The task → the row → ms, ratio and difference."""


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


def write_model(folder: Path, options: argparse.Namespace) -> None:
    """Writes the model and a tokenizer, which the builder needs, unless an earlier run wrote them."""
    import tokenizers

    if (folder / "tokenizer.json").exists():
        return
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(configuration(options))
    model.save_pretrained(folder)
    words = tokenizers.models.WordLevel({f"w{number}": number for number in range(8000)}, unk_token="w0")
    tokenizer = transformers.TokenizersBackend(
        tokenizer_object=tokenizers.Tokenizer(words), eos_token="w2", unk_token="w0"
    )
    tokenizer.save_pretrained(folder)


def export(name: str, options: argparse.Namespace) -> None:
    """Runs one exporter in a process of its own, and keeps the last line of its error."""
    folder = options.folder / name
    python = sys.executable
    if name.startswith("builder"):
        python = options.builder
    elif name == "optimum":
        python = options.optimum
    if python is None or (folder / "model.onnx").exists() or (folder / "error.txt").exists():
        return
    folder.mkdir(exist_ok=True)
    words = [python, "-m", "benchmarks.language_model_exports", name, options.folder / "weights", folder]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    if found.returncode:
        lines = [line for line in found.stderr.splitlines() if re.match(r"[\w.]*(Error|Exception|Exit)", line)]
        (folder / "error.txt").write_text(lines[-1] if lines else found.stderr[-300:], encoding="utf-8")


# ---------------------------------------------------------------- runs


def session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    """Returns a session on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def cache_place(name: str) -> tuple[int, bool] | None:
    """Returns the layer of an input or output of the cache, and whether it has the values; None for others."""
    number = re.search(r"\.(\d+)\.", name)
    return (int(number.group(1)), name.rfind("value") > name.rfind("key")) if number else None


def bound(
    runner: onnxruntime.InferenceSession, example: dict[str, Any], *, in_place: bool
) -> tuple[Run, Callable[[], np.ndarray]]:
    """Returns a function that runs the session on the arguments, and one that returns the logits of the last run.

    With ``in_place``, past and present of a layer are one buffer, with room for the new tokens.
    """
    past, length = example["past_key_values"].get_seq_length(), example["input_ids"].shape[1]
    layers = [(layer.keys.numpy(), layer.values.numpy()) for layer in example["past_key_values"].layers]
    binding = runner.io_binding()
    buffers: dict[tuple[int, bool], onnxruntime.OrtValue] = {}
    for each in runner.get_inputs():
        place = cache_place(each.name)
        array = example[each.name].numpy() if place is None else layers[place[0]][place[1]]
        if place is not None and in_place:
            array = np.concatenate([array, np.zeros((*array.shape[:2], length, array.shape[3]), array.dtype)], 2)
        value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(each.name, value)
        if place is not None:
            buffers[place] = value
    logits = None
    for each in runner.get_outputs():
        place = cache_place(each.name)
        if place is None:
            logits = value = _empty([*example["input_ids"].shape, each.shape[-1]])
        elif in_place:
            value = buffers[place]
        else:
            heads, _, size = layers[place[0]][place[1]].shape[1:]
            value = _empty([1, heads, past + length, size])
        binding.bind_ortvalue_output(each.name, value)
    if logits is None:
        raise RuntimeError("the model returns no logits")
    return lambda: runner.run_with_iobinding(binding), logits.numpy


def _empty(sizes: list[int]) -> onnxruntime.OrtValue:
    return onnxruntime.OrtValue.ortvalue_from_shape_and_type(sizes, np.float32)


def writes_in_place(name: str) -> bool:
    """Returns whether the graph of a row writes new keys and values into the past."""
    return name.startswith(("builder", "target onnxruntime-genai"))


def eager(model: Any, example: dict[str, Any]) -> Run:
    """Returns a function that runs the module and removes the new tokens from the cache."""
    past = example["past_key_values"].get_seq_length()

    def run() -> Any:
        with torch.no_grad():
            cache = example["past_key_values"] if past else transformers.DynamicCache(config=model.config)
            found = model(**{**example, "past_key_values": cache}).logits
            if past:
                cache.crop(past - cache.get_seq_length())
        return found

    return run


def timed(runs: dict[str, Run], rounds: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Returns the ms of each run in each round, after an untimed round.

    Each round has an order of its own, because a run is slower behind one that leaves little in the caches.
    """
    found: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name in random.Random(turn).sample(list(runs), len(runs)):
            start = clock()
            runs[name]()
            if turn:
                found[name].append((clock() - start) * 1e3)
    return found


def graph(folder: Path, name: str, past: int) -> Path:
    """Returns the path of the graph of a row that continues after a past of this length."""
    prefill = folder / name / "prefill.onnx"
    return prefill if past == 0 and prefill.exists() else folder / name / "model.onnx"


def measure(precision: str, threads: int, options: argparse.Namespace) -> Result:
    """Runs all rows of one precision in this process."""
    torch.set_num_threads(threads)
    folder, clock = options.folder, time.process_time if threads == 1 else time.perf_counter
    model = loaded(folder / "weights")
    if precision != "fp32":
        quantize(model, folder / REFERENCE[precision] / "model.onnx")
    names = [name for name in ROWS[precision] if (folder / name / "model.onnx").exists()]
    runners = {name: session(graph(folder, name, 1), threads) for name in names}
    result: Result = {}
    for task, length, past, rounds in tasks(options):
        example = arguments(model.config, length, past)
        runs = {ROWS[precision][-1]: eager(model, example)}
        want = runs[ROWS[precision][-1]]().numpy()
        differences = {}
        for name in names:
            runner = runners[name]
            if graph(folder, name, past) != graph(folder, name, 1):
                runner = session(graph(folder, name, past), threads)
            runs[name], logits = bound(runner, example, in_place=writes_in_place(name))
            runs[name]()
            differences[name] = float(np.sqrt(np.mean((logits() - want) ** 2) / np.mean(want**2)))
            if name.startswith("products"):
                differences[name] = float("nan")
            elif differences[name] > LARGEST_DIFFERENCE[precision]:
                raise RuntimeError(f"{name}, {task}: the logits differ by {differences[name]:.1e} of torch's")
        times = timed(runs, rounds, clock)
        reference = times[REFERENCE[precision] if REFERENCE[precision] in times else names[0]]
        result[task] = {
            name: {
                "ms": statistics.median(each),
                "ratio": statistics.median(a / b for a, b in zip(each, reference, strict=True)),
                "difference": differences.get(name, 0.0),
            }
            for name, each in times.items()
        }
    return result


def tasks(options: argparse.Namespace) -> list[tuple[str, int, int, int]]:
    """Returns the name, the new tokens, the past and the number of rounds of each measurement."""
    decodes = [(f"decode at {past}", 1, past, options.rounds) for past in options.pasts]
    return [*decodes, (f"prefill {options.prompt}", options.prompt, 0, max(3, options.rounds // 4))]


def peak_memory(folder: Path, name: str, prompt: int) -> float:
    """Returns by how many MB the peak memory of this process grows when it loads a model and runs a prefill."""
    config = transformers.AutoConfig.from_pretrained(folder / "weights")
    example = arguments(config, prompt, 0)
    before = _peak()
    run, _ = bound(session(graph(folder, name, 0), 1), example, in_place=writes_in_place(name))
    run()
    return (_peak() - before) / 1024


def _peak() -> int:
    """Returns the peak memory of this process in KB. ru_maxrss would include that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0])


# ---------------------------------------------------------------- parts and tables


def parts(options: argparse.Namespace) -> list[list[str]]:
    """Returns the measurements, one process each: of memory, and of times."""
    memory = [["memory", name] for precision in options.precisions for name in ROWS[precision] if EAGER not in name]
    times = [
        ["times", precision, str(threads), str(number)]
        for number in range(options.processes)
        for precision in options.precisions
        for threads in options.threads
    ]
    return [*memory, *times]


def run_part(part: Sequence[str], options: argparse.Namespace) -> Any:
    """Returns the result of a part in this process."""
    if part[0] == "memory":
        return peak_memory(options.folder, part[1], options.prompt)
    return measure(part[1], int(part[2]), options)


def stored(part: Sequence[str], options: argparse.Namespace) -> Path:
    """Returns the file with the result of a part."""
    return Path(options.folder / "results" / f"{' '.join(part)}.json")


def table(precision: str, threads: int, options: argparse.Namespace) -> list[str]:
    """Returns the lines of a Markdown table."""
    paths = [stored(["times", precision, str(threads), str(number)], options) for number in range(options.processes)]
    results: list[Result] = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
    if not results:
        return []
    names = [task for task, *_ in tasks(options)]
    header = ["", "nodes", *(f"{name}, ms" for name in names), "file, MB", "memory, MB", "difference"]
    lines = [f"\n{precision}, {threads} threads, {len(results)} processes\n", f"| {' | '.join(header)} |"]
    lines.append("|" + "---|" * len(header))
    for name in ROWS[precision]:
        path = options.folder / name / "model.onnx"
        if EAGER not in name and not path.exists():
            error = options.folder / name / "error.txt"
            why = (
                error.read_text(encoding="utf-8")
                if error.exists()
                else "not exported yet, or its environment is not given"
            )
            lines.append(f"| {name} | {why} |" + " |" * (len(header) - 2))
            continue
        nodes = len(onnx.load(path, load_external_data=False).graph.node) if path.exists() else ""
        memory = stored(["memory", name], options)
        megabytes = f"{json.loads(memory.read_text(encoding='utf-8')):.0f}" if memory.exists() else ""
        difference = max(result[task][name]["difference"] for result in results for task in names)
        shown = "" if math.isnan(difference) else f"{difference:.0e}"
        cells = [_cell([result[task][name] for result in results]) for task in names]
        size = sum(file.stat().st_size for file in path.parent.glob("model.onnx*")) // 10**6 if path.exists() else ""
        lines.append(f"| {' | '.join([name, str(nodes), *cells, str(size), megabytes, shown])} |")
    return lines


def _cell(found: list[dict[str, float]]) -> str:
    ratios = [each["ratio"] for each in found]
    milliseconds = statistics.median(each["ms"] for each in found)
    return f"{milliseconds:.1f}, {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"


def parsed() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="keeps the models and the results")
    parser.add_argument("--builder", help="a Python interpreter that has onnxruntime-genai")
    parser.add_argument("--optimum", help="a Python interpreter that has optimum-onnx")
    parser.add_argument("--precisions", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--pasts", nargs="+", type=int, default=[128, 1024])
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stops after the part that exceeds them")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Exports the models, runs each part in a process, and prints the tables."""
    options, start = parsed(), time.monotonic()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if options.part:
        result = run_part(options.part, options)
        stored(options.part, options).write_text(json.dumps(result), encoding="utf-8")
        return
    (options.folder / "results").mkdir(parents=True, exist_ok=True)
    write_model(options.folder / "weights", options)
    order = sorted(
        {name for each in options.precisions for name in ROWS[each] if name in EXPORTERS}, key=_builder_first
    )
    for step in [*((export, name) for name in order), *((_run, part) for part in parts(options))]:
        if time.monotonic() - start < options.seconds:
            step[0](step[1], options)
    print(f"torch {torch.__version__}, ONNX Runtime {onnxruntime.__version__}, transformers {transformers.__version__}")
    for precision in options.precisions:
        for threads in options.threads:
            print(*table(precision, threads, options), sep="\n")


def _builder_first(name: str) -> tuple[bool, str]:
    """Sorts the builder's graphs to the front, because others take its weights of 4 bits."""
    return not name.startswith("builder"), name


def _run(part: list[str], options: argparse.Namespace) -> None:
    """Runs a part in a process of its own, unless it has a result or nothing to run."""
    missing = part[0] == "memory" and not (options.folder / part[1] / "model.onnx").exists()
    if not stored(part, options).exists() and not missing:
        words = [sys.executable, "-m", "benchmarks.language_models", *sys.argv[1:], "--part", *part]
        subprocess.run(words, check=True, env={**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"})


if __name__ == "__main__":
    main()
