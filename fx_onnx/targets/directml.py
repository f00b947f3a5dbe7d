"""ONNX Runtime with its DirectML provider. Not executed."""

from fx_onnx.passes.legalization.indices import legalize_unique
from fx_onnx.passes.legalization.legalize import LEGALIZATIONS
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

TARGET = Target(
    name="directml",
    versions="ONNX Runtime 1.20 to 1.24, DirectML provider",
    opset=18,
    table="directml",
    expands_functions=True,
    legalizations=(legalize_unique, *LEGALIZATIONS),
    notes=("A node without a kernel runs in the CPU provider.",),
)
