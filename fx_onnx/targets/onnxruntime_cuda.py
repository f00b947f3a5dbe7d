"""ONNX Runtime with its CUDA provider. Not executed."""

from fx_onnx.passes.legalization.legalize import legalizations
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

TARGET = Target(
    name="onnxruntime-cuda",
    versions="ONNX Runtime 1.31, CUDA provider",
    opset=18,
    table="onnxruntime-cuda",
    expands_functions=True,
    # ONNX Runtime gives a node to the first provider that has a kernel for it, so a node that only the CPU provider
    # runs needs Casts for the CPU provider.
    legalizations=legalizations("onnxruntime-cuda", "onnxruntime-cuda", "onnxruntime"),
    notes=(
        "float16 and bfloat16 stay as they are: no Casts where the CUDA provider has a kernel for them.",
        "Older versions have no kernels for Equal, Pad, ReduceMax and Resize above opset 18.",
        "A node without a kernel runs in the CPU provider, between two copies.",
    ),
)
