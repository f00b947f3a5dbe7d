"""``torch.onnx.verification``: comparison of modules with their ONNX programs.

``fx_onnx.verify`` compares with tolerances that depend on the dtype.
"""

from fx_onnx.compat.graph_info import GraphInfo, find_mismatch
from fx_onnx.compat.module_verification import (
    OnnxBackend,
    VerificationInfo,
    VerificationOptions,
    verify,
    verify_onnx_program,
)

__all__ = [
    "GraphInfo",
    "OnnxBackend",
    "VerificationInfo",
    "VerificationOptions",
    "find_mismatch",
    "verify",
    "verify_onnx_program",
]
