"""ONNX Runtime with its DirectML provider. Not executed."""

from fx_onnx.backends.legalization.rows import legalizations
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

TARGET = Target(
    name="directml",
    versions="ONNX Runtime 1.20 to 1.24, DirectML provider",
    opset=18,
    table="directml",
    expands_functions=True,
    legalizations=legalizations("directml"),
    notes=("A node without a kernel runs in the CPU provider.",),
)
