"""Runs the tools that users apply to a model on each file of a folder: which tool fails on which file, and how.

    ENVIRONMENT/bin/python benchmarks/runtime_workers/model_tools.py FOLDER

The environment has onnx, onnxruntime, sympy, onnxslim, onnxsim and onnxconverter-common. benchmarks/runtimes.py writes
such folders. A tool's model must load in ONNX Runtime.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime


def strict_shape_inference(path: str) -> Any:
    """Checks the model with all of onnx's checks."""
    onnx.checker.check_model(path, full_check=True)
    return onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True, data_prop=True)


def symbolic_shape_infer(path: str) -> Any:
    """Infers shapes with ONNX Runtime's tool."""
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    return SymbolicShapeInference.infer_shapes(onnx.load(path), auto_merge=True)


def quantize_dynamic(path: str) -> Any:
    """Quantizes the weights of MatMul and Gemm to int8."""
    from onnxruntime import quantization

    with tempfile.TemporaryDirectory() as folder:
        quantization.quantize_dynamic(path, f"{folder}/q.onnx")
        return onnx.load(f"{folder}/q.onnx")


def quantize_static(path: str) -> Any:
    """Quantizes weights and activations to int8, in the form with QuantizeLinear and DequantizeLinear."""
    from onnxruntime import quantization

    class Calibration(quantization.CalibrationDataReader):  # type: ignore[misc, no-any-unimported]
        def __init__(self) -> None:
            """Reads the inputs that benchmarks/runtimes.py wrote beside the model."""
            names = [value.name for value in onnx.load(path, load_external_data=False).graph.input]
            row = {name: np.load(Path(path).with_suffix(f".0.in{i}.npy")) for i, name in enumerate(names)}
            self.rows = iter([row])

        def get_next(self) -> Any:
            return next(self.rows, None)

    with tempfile.TemporaryDirectory() as folder:
        quantization.quant_pre_process(path, f"{folder}/p.onnx", auto_merge=True)
        quantization.quantize_static(f"{folder}/p.onnx", f"{folder}/q.onnx", Calibration())
        return onnx.load(f"{folder}/q.onnx")


def float16(path: str) -> Any:
    """Converts the model to float16, with the inputs and outputs in float32."""
    from onnxconverter_common import float16

    return float16.convert_float_to_float16(onnx.load(path), keep_io_types=True)


def transformers_float16(path: str) -> Any:
    """Converts the model to float16 with the converter of onnxruntime.transformers."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    return convert_float_to_float16(onnx.load(path), keep_io_types=True)


def onnxslim(path: str) -> Any:
    """Simplifies the model."""
    import onnxslim as tool

    return tool.slim(onnx.load(path))


def onnxsim(path: str) -> Any:
    """Simplifies the model."""
    import onnxsim as tool

    return tool.simplify(onnx.load(path))[0]


TOOLS: tuple[Callable[[str], Any], ...] = (
    strict_shape_inference,
    symbolic_shape_infer,
    quantize_dynamic,
    quantize_static,
    float16,
    transformers_float16,
    onnxslim,
    onnxsim,
)


def problem(tool: Callable[[str], Any], path: str) -> str:
    """Returns the first line of the error of a tool, or of loading its model; empty if there is none."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(tool(path).SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # whatever a tool raises is the answer
        return f"{type(error).__name__}: {error}".splitlines()[0][:160]
    return ""


def main(folder: str) -> None:
    """Prints the failures, then the number of files that each tool accepts."""
    warnings.filterwarnings("ignore")
    paths = sorted(Path(folder).glob("*.onnx"))
    rows = []
    for tool in TOOLS:
        problems = {path.stem: problem(tool, str(path)) for path in paths}
        for name, text in problems.items():
            if text:
                print(f"{tool.__name__}: {name}: {text}", flush=True)
        rows.append(f"| {tool.__name__} | {sum(not text for text in problems.values())} of {len(problems)} |")
    print("\n".join(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
