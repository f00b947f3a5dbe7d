"""Compiles an ONNX file for Qualcomm's Hexagon NPU with the provider QNN, and runs it in the package's simulator.

    python fx_onnx/backends/qnn_session.py MODEL.onnx [INPUTS.npz RESULTS.npz] > RESULT.json

It is a program of its own that imports nothing of fx_onnx, because the libraries may end the process. The packages
onnxruntime and onnxruntime-qnn must be installed. They need no NPU: on x86-64 the compiler is the NPU's own, and a
simulator computes what the compiler writes. No node may run on the CPU. The provider gives its reasons in the log,
which is on the standard error.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

PROVIDER = "QNNExecutionProvider"
OPTIONS = {"enable_htp_fp16_precision": "1", "soc_model": "60", "htp_arch": "73"}
"""The options of the provider: the NPU of Snapdragon X Elite, with float32 computed in float16."""

_VERBOSE, _FATAL = 0, 4


def npu_session(model: str | bytes, context: str = "") -> Any:
    """Returns an InferenceSession whose nodes are all on the NPU.

    Args:
        model: the path or the bytes of an ONNX model.
        context: the path of the ONNX file with the compiled model, whose binary is written beside it. With it, the log
            is verbose.
    """
    import onnxruntime as ort
    import onnxruntime_qnn as qnn

    options = ort.SessionOptions()
    options.log_severity_level = _VERBOSE if context else _FATAL
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if not any(device.ep_name == PROVIDER for device in ort.get_ep_devices()):
        ort.register_execution_provider_library(PROVIDER, qnn.get_library_path())
    devices = [device for device in ort.get_ep_devices() if device.ep_name == PROVIDER]
    options.add_provider_for_devices(devices, {"backend_path": qnn.get_qnn_htp_path(), **OPTIONS})
    if context:
        options.add_session_config_entry("ep.context_enable", "1")
        options.add_session_config_entry("ep.context_file_path", context)
    return ort.InferenceSession(model, options)


def compile_file(model: str | bytes, inputs: Any = None) -> tuple[int, dict[str, Any]]:
    """Returns the size of the context binary in bytes, and the results for ``inputs`` by name.

    The runtime raises an error if the provider does not take the whole model.
    """
    with tempfile.TemporaryDirectory() as folder:
        session = npu_session(model, f"{folder}/context.onnx")
        names = [value.name for value in session.get_outputs()]
        results = {} if inputs is None else dict(zip(names, session.run(names, dict(inputs)), strict=True))
        return sum(file.stat().st_size for file in Path(folder).iterdir() if file.suffix != ".onnx"), results


if __name__ == "__main__":
    import numpy as np

    size, computed = compile_file(sys.argv[1], np.load(sys.argv[2]) if len(sys.argv) > 2 else None)
    if computed:
        np.savez(sys.argv[3], **computed)
    json.dump({"bytes": size}, sys.stdout)
