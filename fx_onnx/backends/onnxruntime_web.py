"""ONNX Runtime Web with its provider for WebAssembly, in a browser or in Node.js."""

from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

TARGET = Target(
    name="onnxruntime-web",
    versions="onnxruntime-web 1.20 to 1.30, WebAssembly provider",
    executed=True,
    table="onnxruntime",
    expands_functions=True,
    refuses=True,
    notes=("The WebAssembly provider has the kernels of the CPU provider, so the table is that of the CPU provider.",),
)
