"""ONNX Runtime Web with its WebGPU provider. Executed by SwiftShader, on a CPU."""

from fx_onnx.backends.legalization.rows import legalizations
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

TARGET = Target(
    name="webgpu",
    versions="onnxruntime-web 1.30, WebGPU provider",
    executed=True,
    table="webgpu",
    legalizations=legalizations("webgpu"),
    notes=("A node without a kernel runs in the WebAssembly provider, between two copies.",),
)
