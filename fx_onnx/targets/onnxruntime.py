"""ONNX Runtime with its CPU provider, on a server, a desktop or a phone. It is the default target."""

from fx_onnx.passes.weights.nbits_products import FuseMatMulNBits
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

TARGET = Target(
    name="onnxruntime",
    versions="ONNX Runtime 1.29 to 1.31, CPU provider",
    executed=True,
    table="onnxruntime",
    expands_functions=True,
    fusions=(FuseMatMulNBits(),),
    domains=("com.microsoft",),
)
