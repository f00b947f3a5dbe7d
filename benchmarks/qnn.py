"""Compiles networks for Qualcomm's NPU, runs them in the simulator of onnxruntime-qnn, and compares with PyTorch.

    python -m benchmarks.qnn [--names bert,gpt2] [--opset 20] [--results build/qnn.jsonl]
    python -m benchmarks.qnn --precision a16w8 --opset 21 [--names ...]
    python -m benchmarks.qnn --decoders

``onnxruntime-qnn`` must be installed (``fx_onnx[qnn]``). The networks are those of benchmarks/runtime_models.py, of
torchvision, timm if it is installed, and transformers, with static shapes and weights of unit gain: batch norms have
the statistics of their inputs. No node runs on the CPU, and the NPU computes in float16. A result is *right* if it
differs from eager PyTorch in float32 by at most 1e-2 of the largest number of the output, or by at most twice what
eager PyTorch in float16 does. The file of results keeps what was run, so a run continues where an earlier one ended.

With ``--precision``, ``fx_onnx.quantize`` rounds the networks, and a result is right if it differs by at most 1e-2 from
the same file in ONNX Runtime on the CPU, or from PyTorch by no more than that does. All layers are rounded.

``--decoders`` exports three decoders as docs/examples/npu.py does, and counts the first tokens that are those of eager
PyTorch, of 20 after each of 3 prompts: in ONNX Runtime on the CPU, and in the simulator.
"""

from __future__ import annotations

import argparse
import json
import runpy
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from torch import nn

import fx_onnx
from benchmarks.runtime_models import MODELS, TOLERANCE_OF_ROUNDED, _of_family, _of_vision
from benchmarks.runtimes import ordered, tensors
from fx_onnx.backends.qnn_compiler import installed_version, run_program
from fx_onnx.backends.qnn_session import npu_session
from fx_onnx.messages.errors import OnnxExporterError
from tests.models.families import FAMILIES, Family
from tests.models.registry import CASES, Inputs, images
from tests.models.small_networks import SMALL_NETWORKS
from tests.models.vision import VISION, calibrate

_VISION = (
    "resnet18 mobilenet_v2 mobilenet_v3_small efficientnet_b0 densenet121 regnet_y_400mf mnasnet0_5 convnext_tiny "
    "swin_t"
)
_FAMILIES = "yolos deit dinov2 pvt segformer qwen2 gpt_neox phi roberta electra mobilebert"
_DECODERS = "llama_cache qwen3_cache gpt2_cache"
_TIMM = "mobilevit_xxs ghostnet_100 levit_128s repvgg_a0"
_SMALLER = {"swin2sr": images(1, 32)}
"""Inputs of the networks that the simulator runs for too long on those of the list."""
_CALIBRATED = [case.name for case in (*CASES, *SMALL_NETWORKS)]
_Network = Callable[[], tuple[nn.Module, Inputs]]


def networks() -> Iterator[tuple[str, _Network]]:
    """Yields the name of each network, and the function that builds it with its inputs."""
    models = [
        *MODELS,
        *(_of_vision(model) for model in VISION if model.name in _VISION.split()),
        *(_of_family(family) for family in FAMILIES if family.name in _FAMILIES.split()),
    ]
    for model in {model.name: model for model in models}.values():

        def build(model: Any = model) -> tuple[nn.Module, Inputs]:
            module = model.build()
            inputs = _SMALLER.get(model.name) or model.examples(module)[0]
            if model.name in _CALIBRATED:
                calibrate(module, lambda: module(*inputs.args, **inputs.kwargs))
            return module, inputs

        yield model.name, build
    try:
        import timm
    except ImportError:
        return
    for name in _TIMM.split():
        yield f"timm_{name}", lambda name=name: (timm.create_model(name).eval(), images(1, 224))


def compared(build: _Network, opset: int | None, precision: str) -> tuple[str, str]:
    """Returns whether a network is right in the simulator, and the difference or the reason."""
    module, inputs = build()
    program = fx_onnx.export(
        module, inputs.args, kwargs=inputs.kwargs, target="qnn", opset_version=opset, verbose=False
    )
    names = [str(value.name) for value in program.model.graph.inputs]
    given = dict(zip(names, ordered(names, module, inputs), strict=True))
    if precision:
        program = fx_onnx.quantize(
            program, [given], precision=precision, target="qnn", largest_distance=float("inf")
        ).program
    with tempfile.TemporaryDirectory() as folder:
        path, written, results = (Path(folder) / name for name in ("model.onnx", "inputs.npz", "results.npz"))
        program.save(path)
        np.savez(written, **{name: x.detach().numpy() for name, x in given.items()})
        with torch.no_grad():
            wanted = [x.detach().double().numpy() for x in tensors(module(*inputs.args, **inputs.kwargs))]
        size, refusals = run_program(path, written, results)
        if not size:
            return "refused", "; ".join(f"{each.operator} {each.node}: {each.text}" for each in refusals)[:600]
        computed = list(np.load(results).values())
    error = difference(wanted, computed)
    if precision:
        rounded = [x.detach().double().numpy() for x in tensors(program(*given.values()))]
        apart, rounding = difference(rounded, computed), difference(wanted, rounded)
        is_right = apart <= TOLERANCE_OF_ROUNDED or error <= rounding
        return ("right" if is_right else "wrong"), f"{error:.1e}, the file {rounding:.1e}, between them {apart:.1e}"
    if error <= TOLERANCE_OF_ROUNDED:
        return "right", f"{error:.1e}"
    rounding = difference(wanted, [x.detach().double().numpy() for x in _in_float16(*build())])
    return ("right" if error <= 2 * rounding else "wrong"), f"{error:.1e}, PyTorch in float16 {rounding:.1e}"


def _in_float16(module: nn.Module, inputs: Inputs) -> list[torch.Tensor]:
    args, kwargs = inputs.to(torch.float16)
    with torch.no_grad():
        return tensors(module.half()(*args, **kwargs))


def difference(wanted: Sequence[Any], computed: Sequence[Any]) -> float:
    """Returns the largest difference as a share of the largest number of its output; infinity for other shapes."""
    if [x.shape for x in wanted] != [x.shape for x in computed]:
        return float("inf")
    largest = [max(float(np.abs(x).max(initial=0)), 1e-6) for x in wanted]
    errors = [float(np.abs(x - y).max(initial=0)) / size for x, y, size in zip(wanted, computed, largest, strict=True)]
    return float(np.max(errors, initial=0))  # NaN stays


def summary(found: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields the number of networks of each outcome, the median difference of the right ones, and the other names."""
    names: dict[str, list[str]] = {}
    for name, (outcome, _) in found.items():
        names.setdefault(outcome, []).append(name)
    for outcome, each in sorted(names.items()):
        if outcome == "right":  # without --precision, the difference comes first; with it, that from the file is last
            text = [found[name][1].partition(", PyTorch")[0] for name in each]
            differences = [float(words.rpartition(" ")[2]) for words in text]
            yield f"right: {len(each)} of {len(found)}, median difference {np.median(differences):.1e}"
        else:
            yield f"{outcome}: {len(each)}, {', '.join(each)}"


def decoder(family: Family) -> str:
    """Returns how many tokens of a decoder are equal, on the CPU and in the simulator."""
    example = runpy.run_path("docs/examples/npu.py")
    model, counts = family.build(), {"CPU": [0, 0], "simulator": [0, 0]}
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        files = example["export"](model, Path(folder))
        ways = {
            "CPU": [ort.InferenceSession(file) for file in files],
            "simulator": [npu_session(str(f)) for f in files],
        }
        for length in (5, 9, 16):
            prompt = torch.randint(1, model.config.vocab_size, (1, length))
            mask = torch.ones_like(prompt)
            generated = model.generate(
                prompt, attention_mask=mask, max_new_tokens=20, min_new_tokens=20, do_sample=False
            )
            wanted = generated[0, length:].tolist()
            for way, sessions in ways.items():
                tokens = list(example["generate"](sessions, prompt[0].tolist(), 20))
                same = next((i for i, pair in enumerate(zip(tokens, wanted, strict=True)) if len({*pair}) > 1), 20)
                counts[way] = [counts[way][0] + same, counts[way][1] + 20]
    return ", ".join(f"{way} {same} of {count}" for way, (same, count) in counts.items())


def main() -> None:
    """Prints one line for each network, then the sums of docs/runtimes.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", default="")
    parser.add_argument("--opset", type=int)
    parser.add_argument("--precision", default="", help="int8-static, a16w8 or a16w4")
    parser.add_argument("--decoders", action="store_true")
    parser.add_argument("--results", type=Path, default=Path("build/qnn.jsonl"))
    given = parser.parse_args()
    if not installed_version():
        raise SystemExit("onnxruntime-qnn is not installed.")
    warnings.filterwarnings("ignore")
    if given.decoders:
        for family in FAMILIES:
            if family.name in _DECODERS.split():
                print(family.name, decoder(family), sep=" | ", flush=True)
        return
    given.results.parent.mkdir(parents=True, exist_ok=True)
    kept = given.results.read_text(encoding="utf-8").splitlines() if given.results.exists() else []
    known = dict(map(json.loads, kept))
    found = {}
    for name, build in networks():
        if given.names and name not in given.names.split(","):
            continue
        if (key := f"{name} {given.precision}".strip()) not in known:
            try:
                known[key] = compared(build, given.opset, given.precision)
            except OnnxExporterError as error:
                known[key] = "not exported", str(error)[:300]
            except Exception as error:  # of eager PyTorch in float16, or a crash of the export
                known[key] = "failed", f"{type(error).__name__}: {error}"[:300]
            with given.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps([key, known[key]]) + "\n")
        found[name] = known[key]
        print(key, *known[key], sep=" | ", flush=True)
    print("\n".join(summary(found)))


if __name__ == "__main__":
    main()
