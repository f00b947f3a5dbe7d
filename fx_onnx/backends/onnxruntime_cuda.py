"""ONNX Runtime with its CUDA provider."""

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.backends.legalization.normalizations import has_mixed_scale
from fx_onnx.backends.legalization.rows import legalizations
from fx_onnx.onnx_model.dtypes import is_float
from fx_onnx.passes.matchers import attribute
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]

_REDUCED = (DataType.FLOAT, DataType.FLOAT16)


def _defect(node: ir.Node) -> str:
    """Returns what a kernel computes wrongly or refuses when the model runs; measured with 1.31.1 on an H200."""
    dtype = node.inputs[0].dtype if node.inputs and node.inputs[0] is not None else None
    if dtype is None:
        return ""
    if node.op_type == "ScatterND" and attribute(node, "reduction", "none") != "none" and dtype not in _REDUCED:
        return "the kernel reduces float16 and float32 only"
    if node.op_type == "Pow" and has_mixed_scale(node):
        return "it is fused into a norm of bfloat16 and float32, which has no kernel"
    if node.op_type == "Pow" and not is_float(dtype):
        return "the kernel computes powers of integers in floats and rounds them down"
    if node.op_type in ("ReduceMax", "ReduceMin") and dtype == DataType.INT64:
        return "the kernel computes in float64, which rounds integers above 2**53"
    return ""


TARGET = Target(
    name="onnxruntime-cuda",
    versions="ONNX Runtime 1.31, CUDA provider",
    opset=18,
    executed=True,
    table="onnxruntime-cuda",
    constraint=_defect,
    expands_functions=True,
    # ONNX Runtime gives a node to the first provider that has a kernel for it, so a node that only the CPU provider
    # runs needs Casts for the CPU provider.
    legalizations=legalizations("onnxruntime-cuda", "onnxruntime-cuda", "onnxruntime"),
    notes=(
        "float16 and bfloat16 stay as they are: no Casts where the CUDA provider has a kernel for them.",
        "Opset 23 is faster for transformers, but there MaxPool has no kernel and runs on the CPU.",
        "Older versions have no kernels for Equal, Pad, ReduceMax and Resize above opset 18.",
        "ReduceMax and ReduceMin ignore some NaN.",
        "A node without a kernel runs in the CPU provider, between two copies.",
    ),
)
