"""ONNX Runtime with its CUDA provider. Not executed."""

from fx_onnx.targets.target import Lack, Target

__all__ = ["TARGET"]

_NEWER = "the CUDA provider has a kernel up to opset 18 only, so the CPU provider computes the node"

TARGET = Target(
    name="onnxruntime-cuda",
    versions="ONNX Runtime 1.20 to 1.31, CUDA provider",
    opset=18,
    lacks=(
        Lack("Equal", first=19, reason=_NEWER),
        Lack("Pad", first=19, reason=_NEWER),
        Lack("ReduceMax", first=20, reason=_NEWER),
        Lack("Resize", first=19, reason=_NEWER),
    ),
    notes=(
        "Opset 18 is the newest one for which the provider has kernels for Equal, Pad, ReduceMax and Resize.",
        "A node without a kernel runs in the CPU provider, between two copies.",
    ),
)
