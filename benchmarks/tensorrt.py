"""Compiles networks and operators with TensorRT for RTX, on a CPU, and counts what is built, told and silent.

    python -m benchmarks.tensorrt networks [--names bert,gpt2] [--opsets 18,20] [--dtypes float16] [--shapes static]
    python -m benchmarks.tensorrt operators [--names add,index_add] [--samples 1] [--share 0/3] [--exporter torch.onnx]
        [--shapes static]

``onnxruntime-ep-nv-tensorrt-rtx-cu13`` must be installed (``fx_onnx[tensorrt]``); no GPU is needed and nothing is run.
The networks are those of benchmarks/runtime_models.py, and the operators the samples of PyTorch's own operator tests.
A model is *built*; *told*, if it is refused, and so it is by the export or by the table; *silent*, if the compiler
refuses what the table has; *unjudged*, if it has an operator that is a plug-in. The file of results keeps what was
compiled, so a run continues where an earlier one ended. The last lines are counts for each dtype and opset;
docs/runtimes.md has their sums.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

import fx_onnx
from benchmarks.runtime_models import MODELS, Model
from fx_onnx.backends.tensorrt_compiler import compile_model, libraries
from fx_onnx.messages.errors import OnnxExporterError
from fx_onnx.targets.compilation import Compilation
from fx_onnx.targets.kernel_support import support
from fx_onnx.targets.known_targets import find_target
from tests.opinfo.sweep import _INFOS, _Call, entries

TARGET = find_target("tensorrt")
STATES = ("built", "told", "silent", "unjudged", "not exported")


def state(compilation: Compilation, model: ir.Model | None) -> tuple[str, str]:
    """Returns the state of a compiled model, and why it is not built."""
    missing = () if model is None else support(model, TARGET).missing
    if compilation.unjudged:
        return ("told" if missing else "unjudged"), compilation.unjudged
    if compilation.size:
        return "built", f"but the table lacks {missing[0]}" if missing else ""
    refusal = compilation.refusals[0]
    return ("told" if missing else "silent"), f"{refusal.operator} {refusal.text}"


def compiled(program: fx_onnx.ONNXProgram) -> tuple[str, str]:
    """Returns the state of an exported program."""
    compilation = program.supports(TARGET).compilation
    assert compilation is not None
    return state(compilation, program.model)


# ---------------------------------------------------------------- networks


def networks(
    names: Sequence[str], opsets: Sequence[int], dtypes: Sequence[str], kinds: Sequence[str]
) -> Iterator[tuple[str, Any]]:
    """Yields the name of each case, and the function that compiles it."""
    for model in MODELS:
        for dtype in dtypes if "float16" not in model.name else ():
            for kind in kinds if not names or model.name in names else ():
                for opset in opsets:
                    case = model, opset, getattr(torch, dtype), kind == "dynamic"
                    yield f"{model.name} {dtype} {kind} {opset}", lambda case=case: compiled(_network(*case))


def _network(model: Model, opset: int, dtype: torch.dtype, is_dynamic: bool) -> fx_onnx.ONNXProgram:
    captured = _captured(model, dtype, is_dynamic)
    return fx_onnx.export(captured, (), target=TARGET, opset_version=opset, verbose=False)


@functools.lru_cache(maxsize=1)
def _captured(model: Model, dtype: torch.dtype, is_dynamic: bool) -> torch.export.ExportedProgram:
    """Returns the capture of a network, which the exports for all opsets share."""
    module = model.build().to(dtype)
    inputs = model.examples(module)[0]
    shapes = model.dynamic_shapes(inputs) if is_dynamic else None

    def cast(leaf: Any) -> Any:
        return leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    args, kwargs = pytree.tree_map(cast, (inputs.args, inputs.kwargs))
    program = fx_onnx.export(module, args, kwargs=kwargs, dynamic_shapes=shapes, target=TARGET, verbose=False)
    return program.exported_program


# ---------------------------------------------------------------- operators


def operators(
    names: Sequence[str],
    opsets: Sequence[int],
    dtypes: Sequence[str],
    samples: int,
    share: str,
    exporter: str,
    kinds: Sequence[str],
) -> Iterator[tuple[str, Any]]:
    """Yields the name of each sample, and the function that compiles it. In a dynamic one, dims above 1 are dynamic."""
    number, of = map(int, share.split("/"))
    for dtype in dtypes:
        for entry in entries(getattr(torch, dtype))[number::of]:
            if names and entry.name not in names:
                continue
            for index, sample in enumerate(entry.samples(samples)):
                for kind, opset in itertools.product(kinds, opsets):
                    case = _Call(_INFOS[entry.name], sample), opset, exporter, kind == "dynamic"
                    name = f"{entry.name}[{index}] {dtype} {kind} {opset} {exporter}"
                    yield name, lambda case=case: _operator(*case)


def _operator(module: _Call, opset: int, exporter: str, is_dynamic: bool) -> tuple[str, str]:
    inputs = tuple(module.tensors)
    if exporter == "fx_onnx":
        dims = [{axis: Dim.AUTO for axis, size in enumerate(x.shape) if size > 1} for x in inputs]
        shapes = (tuple(dims),) if is_dynamic else None
        options = {"dynamic_shapes": shapes, "opset_version": opset, "target": TARGET, "verbose": False}
        return compiled(fx_onnx.export(module, inputs, **options))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(module, inputs, path, opset_version=opset, verbose=False, external_data=False)
        compilation = compile_model(ir.load(path), {})
    return state(compilation, None)


# ---------------------------------------------------------------- results


def run(cases: Iterator[tuple[str, Any]], results: Path) -> dict[str, tuple[str, str]]:
    """Compiles what the file of results does not have, and returns all results of these cases."""
    results.parent.mkdir(parents=True, exist_ok=True)
    known = dict(map(json.loads, results.read_text(encoding="utf-8").splitlines())) if results.exists() else {}
    found = {}
    for name, compile_case in cases:
        if name not in known:
            try:
                known[name] = compile_case()
            except OnnxExporterError as error:
                known[name] = "not exported", str(error)[:300]
            except Exception as error:  # eager rejects the sample, or the other exporter any of them
                known[name] = "not exported", f"{type(error).__name__}: {error}"[:300]
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps([name, known[name]]) + "\n")
        found[name] = known[name]
        if known[name][0] != "built" or known[name][1]:
            print(name, *known[name], sep=" | ", flush=True)
    return found


def main() -> None:
    """Prints what is not built, then the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("networks", "operators"))
    parser.add_argument("--names", default="")
    parser.add_argument("--opsets", default="18")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--shapes", default="", help="dynamic, static or both, as of networks; of operators static")
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--share", default="0/1", help="each N-th operator, from the given one on")
    parser.add_argument("--exporter", choices=("fx_onnx", "torch.onnx"), default="fx_onnx")
    parser.add_argument("--results", type=Path, default=Path("build/tensorrt.jsonl"))
    given = parser.parse_args()
    if libraries() is None:
        raise SystemExit("onnxruntime-ep-nv-tensorrt-rtx-cu13 0.5.0 is not installed.")
    warnings.filterwarnings("ignore")
    names, dtypes = [name for name in given.names.split(",") if name], given.dtypes.split(",")
    opsets = list(map(int, given.opsets.split(",")))
    if given.kind == "networks":
        cases = networks(names, opsets, dtypes, (given.shapes or "dynamic,static").split(","))
    else:
        kinds = (given.shapes or "static").split(",")
        cases = operators(names, opsets, dtypes, given.samples, given.share, given.exporter, kinds)
    counts: dict[str, Counter[str]] = {}
    for name, (outcome, _) in run(cases, given.results).items():
        counts.setdefault(name.partition(" ")[2], Counter())[outcome] += 1
    for kind, count in counts.items():
        print(f"{kind}:", ", ".join(f"{name} {count[name]}" for name in STATES))


if __name__ == "__main__":
    main()
