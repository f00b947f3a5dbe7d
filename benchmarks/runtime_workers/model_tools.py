"""Applies one tool to one model and runs its result in ONNX Runtime; benchmarks/runtimes.py starts it.

It prints {"loads": ..., "why": ...} and writes the results to ``WRITTEN.RUN.OUTPUT.npy``. A tool that fails
does not load.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

Job = dict[str, Any]
MODEL_TYPES = {
    "gpt2": "gpt2", "gpt2_cache": "gpt2", "t5": "t5", "vit_transformers": "vit", "clip": "clip", "bart": "bart"
}  # fmt: skip
"""What a user calls the network for ONNX Runtime's optimizer; the others take its default, bert."""


def strict_shape_inference(job: Job) -> Any:
    """Checks the model with all of onnx's checks."""
    onnx.checker.check_model(job["path"], full_check=True)
    return onnx.shape_inference.infer_shapes(onnx.load(job["path"]), strict_mode=True, data_prop=True)


def symbolic_shape_infer(job: Job) -> Any:
    """Infers shapes with ONNX Runtime's tool."""
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    return SymbolicShapeInference.infer_shapes(onnx.load(job["path"]), auto_merge=True)


def quantize_dynamic(job: Job) -> Any:
    """Quantizes the weights of MatMul and Gemm to int8."""
    from onnxruntime import quantization

    with tempfile.TemporaryDirectory() as folder:
        quantization.quantize_dynamic(job["path"], f"{folder}/q.onnx")
        return onnx.load(f"{folder}/q.onnx")


def quantize_static(job: Job) -> Any:
    """Quantizes weights and activations to int8, in the form with QuantizeLinear and DequantizeLinear."""
    from onnxruntime import quantization

    class Calibration(quantization.CalibrationDataReader):  # type: ignore[misc, no-any-unimported]
        def __init__(self) -> None:
            """Reads the inputs of all runs."""
            self.rows = iter([{name: np.load(file) for name, file in row.items()} for row in job["inputs"]])

        def get_next(self) -> Any:
            return next(self.rows, None)

    with tempfile.TemporaryDirectory() as folder:
        quantization.quant_pre_process(job["path"], f"{folder}/p.onnx", auto_merge=True)
        quantization.quantize_static(f"{folder}/p.onnx", f"{folder}/q.onnx", Calibration())
        return onnx.load(f"{folder}/q.onnx")


def common_float16(job: Job) -> Any:
    """Converts the model to float16, with the inputs and outputs in float32."""
    from onnxconverter_common import float16

    return float16.convert_float_to_float16(onnx.load(job["path"]), keep_io_types=True)


def transformers_float16(job: Job) -> Any:
    """Converts the model to float16 with the converter of onnxruntime.transformers."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    return convert_float_to_float16(onnx.load(job["path"]), keep_io_types=True)


def transformers_optimizer(job: Job) -> Any:
    """Fuses with the optimizer of onnxruntime.transformers."""
    from onnxruntime.transformers import optimizer

    kind = MODEL_TYPES.get(Path(job["path"]).stem, "bert")
    return optimizer.optimize_model(job["path"], model_type=kind, opt_level=0).model


def onnxslim(job: Job) -> Any:
    """Simplifies the model."""
    import onnxslim as tool

    return tool.slim(onnx.load(job["path"]))


def onnxsim(job: Job) -> Any:
    """Simplifies the model."""
    import onnxsim as tool

    return tool.simplify(onnx.load(job["path"]))[0]


TOOLS: tuple[Callable[[Job], Any], ...] = (
    strict_shape_inference,
    symbolic_shape_infer,
    onnxslim,
    onnxsim,
    transformers_optimizer,
    transformers_float16,
    common_float16,
    quantize_dynamic,
    quantize_static,
)


def main(tool: str, text: str) -> None:
    """Applies the tool, loads its model in ONNX Runtime, and runs that with all inputs."""
    warnings.filterwarnings("ignore")
    logging.disable()
    job = json.loads(text)
    loads, why = False, ""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        changed = {each.__name__: each for each in TOOLS}[tool](job).SerializeToString()
        session = onnxruntime.InferenceSession(changed, options, providers=["CPUExecutionProvider"])
        loads = True
        for number, files in enumerate(job["inputs"]):
            results = session.run(job["results"], {name: np.load(file) for name, file in files.items()})
            for place, result in enumerate(results):
                np.save(f"{job['written']}.{number}.{place}.npy", result)
    except Exception as error:  # whatever a tool raises is the answer
        why = f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
    print(f"\n{json.dumps({'loads': loads, 'why': why})}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
