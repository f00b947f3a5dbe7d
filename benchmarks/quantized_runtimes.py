"""Shows which runtimes compute the layers of quantized checkpoints, for the table of docs/precision.md.

    PYTHONPATH=PACKAGES python -m benchmarks.quantized_runtimes [--formats "gguf Q4_K"] [--targets onnxruntime openvino]

It needs what ``benchmarks.quantized_formats`` needs, and the runtimes; what is not installed is left out. Each layer
is exported for each target, and run, except with TensorRT for RTX, which only compiles it. A cell is the largest
difference from the library's own weights, relative to the largest result, or why there is none:

- *refused*: the export, or the runtime, refuses the layer.
- *compiled*: nothing was run.
- *kernels*: the table of the CUDA provider has a kernel for each node; nothing was run. A node without one runs on the
  CPU, between two copies.

``no target`` is the model without a target in ONNX Runtime. ``openvino`` computes in float32, ``qnn`` in float16, in
the simulator of onnxruntime-qnn.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

import fx_onnx
from benchmarks.quantized_formats import FORMATS, Made, difference
from benchmarks.runtime_workers import python_runtimes

OPSETS = {
    "no target": 21,
    "onnxruntime": 21,
    "openvino": 21,
    "reference": 24,
    "tensorrt": 23,
    "qnn": 21,
    "onnxruntime-cuda": 21,
}
"""The name of a target → the opset: the first one with 4 bits, or with all the floats of 4 and 8 bits that it takes."""


def run(program: fx_onnx.ONNXProgram, target: str, x: Tensor) -> Tensor | str:
    """Returns the result of a runtime, or one word."""
    if target in ("no target", "onnxruntime"):
        return program(x)[0]
    if target == "onnxruntime-cuda":
        missing = sorted({f"{missing.operator}" for missing in program.supports(target).missing})
        return f"no {', '.join(missing)}" if missing else "kernels"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        program.save(path)
        if target == "qnn":
            from fx_onnx.backends.qnn_compiler import run_program

            given, results = Path(folder) / "given.npz", Path(folder) / "results.npz"
            np.savez(given, **{str(program.model.graph.inputs[0].name): x.numpy()})
            size, refusals = run_program(path, given, results)
            if not size:
                return f"refused ({refusals[0].operator})" if refusals else "refused"
            (result,) = np.load(results).values()
            return torch.from_numpy(result)
        if target == "tensorrt":
            compilation = program.supports("tensorrt").compilation
            assert compilation is not None
            refused = compilation.unjudged or "; ".join(f"{r.operator}: {r.text}" for r in compilation.refusals[:1])
            return f"refused ({refused[:200]})" if refused else "compiled"
        session = getattr(python_runtimes, target)({"path": str(path)})
        return torch.from_numpy(np.asarray(session({str(program.model.graph.inputs[0].name): x.numpy()})[0]))


def cell(make: Callable[[int, int, int], Made], target: str) -> str:
    """Returns the cell of a format and a target."""
    random.seed(0)
    torch.manual_seed(0)
    layer, weight = make(256, 128, 64)
    torch.manual_seed(1)
    x = torch.randn(4, weight.shape[1])
    name, options = None if target == "no target" else target, {"verbose": False, "progress": False}
    try:
        program = fx_onnx.export(layer, (x,), target=name, opset_version=OPSETS[target], **options)
        result = run(program, target, x)
    except Exception as error:
        return f"refused ({type(error).__name__}: {str(error)[:60]})"
    if isinstance(result, str):
        return result
    return f"{difference(result.float(), linear(x, weight.float(), getattr(layer[0], 'bias', None))):.0e}"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS), metavar="FORMAT")
    parser.add_argument("--targets", nargs="+", choices=OPSETS, default=list(OPSETS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("|", " | ".join(("format", *options.targets)), "|")
    print("|", " | ".join("---" for _ in ("format", *options.targets)), "|")
    with torch.no_grad():
        for name in options.formats:
            print(
                "|", " | ".join((name, *(cell(FORMATS[name], target) for target in options.targets))), "|", flush=True
            )


if __name__ == "__main__":
    main()
