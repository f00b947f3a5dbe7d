"""Runs one model in one Python runtime; benchmarks/runtimes.py starts it in the runtime's own environment.

It has no other imports than NumPy and the runtime. It prints {"loads": ..., "why": ..., "nodes": ...} and writes the
results to ``WRITTEN.RUN.OUTPUT.npy``.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Run = Callable[[dict[str, Any]], Sequence[Any]]


class Session:
    """A session of ONNX Runtime.

    Attributes:
        nodes: provider → operator → the number of its nodes, before the provider fuses them.
    """

    def __init__(self, path: str, *providers: str | tuple[str, dict[str, str]]) -> None:
        """Loads the model; raises RuntimeError if ONNX Runtime cannot create the first of the providers."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        self.session = onnxruntime.InferenceSession(path, options, providers=providers)
        first = providers[0] if isinstance(providers[0], str) else providers[0][0]
        if first not in self.session.get_providers():
            raise RuntimeError(f"ONNX Runtime has no {first} here, only {', '.join(self.session.get_providers())}")
        self.nodes: dict[str, Counter[str]] = {}
        for part in self.session.get_provider_graph_assignment_info():
            self.nodes.setdefault(part.ep_name, Counter()).update(node.op_type for node in part.get_nodes())

    def __call__(self, inputs: dict[str, Any]) -> Sequence[Any]:
        """Returns the outputs, in order."""
        return self.session.run(None, inputs)


def onnxruntime(job: dict[str, Any]) -> Run:
    """Returns a session on the CPU."""
    return Session(job["path"], "CPUExecutionProvider")


def onnxruntime_cuda(job: dict[str, Any]) -> Run:
    """Returns a session on an NVIDIA GPU, which rounds the operands of products to TF32 by default."""
    import onnxruntime

    onnxruntime.preload_dlls()  # CUDA and cuDNN of the packages nvidia-*, or of the system
    return Session(job["path"], ("CUDAExecutionProvider", {"use_tf32": "0"}), "CPUExecutionProvider")


def openvino(job: dict[str, Any]) -> Run:
    """Returns the compiled model."""
    import openvino as ov

    core = ov.Core()
    # OpenVINO computes in bfloat16 by default where the processor has instructions for it.
    model = core.compile_model(core.read_model(job["path"]), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda inputs: [model(inputs)[port] for port in model.outputs]


def reference(job: dict[str, Any]) -> Run:
    """Returns onnx's reference evaluator of the model."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(job["path"])
    return lambda inputs: evaluator.run(None, inputs)


def tract(job: dict[str, Any]) -> Run:
    """Returns tract's optimized model."""
    os.environ["RUST_BACKTRACE"] = "0"  # it would be the end of every message
    import tract as runtime

    runnable = runtime.onnx().load(job["path"]).into_model().into_runnable()
    return lambda inputs: [value.to_numpy() for value in runnable.run(list(inputs.values()))]


def mnn(job: dict[str, Any]) -> Run:
    """Returns MNN's module of the converted model.

    The converter is called as a library, because its command line installs a package that reports its use.
    """
    import _tools
    import MNN
    from MNN import expr

    converted = f"{job['written']}.mnn"
    _tools.mnnconvert(
        ["mnnconvert", "-f", "ONNX", "--modelFile", job["path"], "--MNNModel", converted, "--bizCode", "x"]
    )
    module = MNN.nn.load_module_from_file(converted, list(job["inputs"][0]), job["results"])
    kinds = {"float32": expr.float, "int32": expr.int, "uint8": expr.uint8, "int8": expr.int8}

    def run(inputs: dict[str, Any]) -> Sequence[Any]:
        # MNN has neither int64 nor bool, and takes float32 for the inputs of models in float16.
        others = {"int64": np.int32, "bool": np.int32, "float16": np.float32}
        own = [x.astype(others.get(x.dtype.name, x.dtype)) for x in inputs.values()]
        given = [expr.const(x, list(x.shape), expr.NCHW, kinds[x.dtype.name]) for x in own]
        return [expr.convert(result, expr.NCHW).read() for result in module.onForward(given)]

    return run


def iree(job: dict[str, Any]) -> Run:
    """Returns IREE's compiled module of the model, for a CPU."""
    import iree.compiler
    import iree.runtime
    import onnx
    from iree.compiler.tools.import_onnx import __main__ as importer

    imported = f"{job['written']}.mlir"
    importer.main(importer.parse_arguments([job["path"], "-o", imported]))
    host = ["--iree-llvmcpu-target-cpu=host"]
    code = iree.compiler.tools.compile_file(imported, target_backends=["llvm-cpu"], input_type="onnx", extra_args=host)
    context = iree.runtime.SystemContext(config=iree.runtime.Config("local-task"))
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, code))
    function = context.modules.module[onnx.load(job["path"], load_external_data=False).graph.name]

    def run(inputs: dict[str, Any]) -> Sequence[Any]:
        results = function(*inputs.values())
        return results if isinstance(results, (list, tuple)) else [results]

    return run


def tinygrad(job: dict[str, Any]) -> Run:
    """Returns a call of tinygrad on a CPU, for which it needs clang. A runner takes one size of each dim."""
    os.environ["DEV"] = "CPU"
    from tinygrad import Tensor
    from tinygrad.nn.onnx import OnnxRunner

    def run(inputs: dict[str, Any]) -> Sequence[Any]:
        results = OnnxRunner(job["path"])({name: Tensor(x) for name, x in inputs.items()})
        return [result.numpy() for result in results.values()]

    return run


def _shortened(message: str) -> str:
    """Returns the first error that a compiler reports, or the end of the message."""
    _, _, reported = message.partition(" error: ")
    return (reported[:300] or message[-300:]).replace("\n", " ")


def main(runtime: str, text: str) -> None:
    """Loads the model, then runs it with all inputs."""
    job = json.loads(text)
    loads, why, nodes = False, "", {}
    every = (onnxruntime, onnxruntime_cuda, openvino, reference, tract, mnn, iree, tinygrad)
    try:
        run = {each.__name__: each for each in every}[runtime.replace("-", "_")](job)
        loads, nodes = True, getattr(run, "nodes", {})
        for number, files in enumerate(job["inputs"]):
            for place, result in enumerate(run({name: np.load(file) for name, file in files.items()})):
                np.save(f"{job['written']}.{number}.{place}.npy", np.asarray(result))
    except Exception as error:  # whatever the runtime raises is the answer
        why = _shortened(f"{type(error).__name__}: {error}")
    reply = json.dumps({"loads": loads, "why": why, "nodes": nodes})
    print(f"\n{reply}", flush=True)  # MNN leaves its own last line open


if __name__ == "__main__":
    main(*sys.argv[1:])
