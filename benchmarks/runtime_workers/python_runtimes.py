"""Runs one model in one Python runtime; benchmarks/runtimes.py starts it in the runtime's own environment.

It has no other imports than NumPy and the runtime. It prints {"loads": ..., "why": ...} and writes the results to
``MODEL.RUN.OUTPUT.npy``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Run = Callable[[dict[str, Any]], Sequence[Any]]


def openvino(path: str) -> Run:
    """Returns the compiled model."""
    import openvino as ov

    core = ov.Core()
    # OpenVINO computes in bfloat16 by default where the processor has instructions for it.
    model = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda inputs: [model(inputs)[port] for port in model.outputs]


def reference(path: str) -> Run:
    """Returns onnx's reference evaluator of the model."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(path)
    return lambda inputs: evaluator.run(None, inputs)


def tract(path: str) -> Run:
    """Returns tract's optimized model."""
    import tract as runtime

    model = runtime.onnx().load(path).into_model()
    runnable = model.into_runnable()
    return lambda inputs: [value.to_numpy() for value in runnable.run(list(inputs.values()))]


def mnn(path: str) -> Run:
    """Returns MNN's module of the converted model. The converter is called as a library."""
    import MNN
    from MNN import expr
    from MNN.tools import mnnconvert  # noqa: F401  registers the converter

    converted = f"{path}.mnn"
    import _tools

    _tools.mnnconvert(["mnnconvert", "-f", "ONNX", "--modelFile", path, "--MNNModel", converted, "--bizCode", "x"])
    import onnx_names

    names = onnx_names.read(path)
    module = MNN.nn.load_module_from_file(converted, *names)

    def run(inputs: dict[str, Any]) -> Sequence[Any]:
        given = [expr.const(x, list(x.shape), expr.NCHW) for x in inputs.values()]
        return [expr.convert(result, expr.NCHW).read() for result in module.onForward(given)]

    return run


def main(runtime: str, text: str) -> None:
    """Loads the model, then runs it with all inputs."""
    job = json.loads(text)
    loads, why = False, ""
    try:
        run = {"openvino": openvino, "reference": reference, "tract": tract, "mnn": mnn}[runtime](job["path"])
        loads = True
        for number, files in enumerate(job["inputs"]):
            for place, result in enumerate(run({name: np.load(file) for name, file in files.items()})):
                np.save(f"{job['path']}.{number}.{place}.npy", np.asarray(result))
    except Exception as error:  # whatever the runtime raises is the answer
        why = f"{type(error).__name__}: {error}".replace("\n", " ")[-300:]
    print(json.dumps({"loads": loads, "why": why}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
