"""ONNX Runtime with its CPU provider, on a server, a desktop or a phone. It is the default target."""

from dataclasses import replace

from fx_onnx.libraries.recurrences import RUNTIME_FORMS
from fx_onnx.passes.legalization.legalize import legalizations
from fx_onnx.quantized_weights.nbits_products import FuseMatMulNBits
from fx_onnx.targets.target import Target

__all__ = ["ACCURACY_LEVEL_4", "ROUNDING_NOTE", "TARGET"]

TARGET = Target(
    name="onnxruntime",
    versions="ONNX Runtime 1.29 to 1.32, CPU provider",
    executed=True,
    table="onnxruntime",
    expands_functions=True,
    translations=RUNTIME_FORMS,
    legalizations=legalizations("onnxruntime"),
    fusions=(FuseMatMulNBits(),),
    domains=("com.microsoft",),
)

ROUNDING_NOTE = "A product with a quantized weight rounds its other operand to 8 bits."

ACCURACY_LEVEL_4 = replace(
    TARGET,
    name="onnxruntime-accuracy-level-4",
    opset=21,  # the first one with blocks of weights, without which a weight of 4 bits has no MatMulNBits
    fusions=(FuseMatMulNBits(accuracy_level=4),),
    notes=(ROUNDING_NOTE,),
)
