"""Exports PyTorch models to ONNX through torch.export."""

from fx_onnx.capture import is_in_onnx_export
from fx_onnx.errors import (
    ArgumentError,
    CaptureError,
    CheckerError,
    MutationError,
    OnnxExporterError,
    OnnxExporterWarning,
    TranslationError,
    UnsupportedOperatorError,
    VerificationError,
)
from fx_onnx.export import export
from fx_onnx.program import ONNXProgram

__all__ = [
    "ArgumentError",
    "CaptureError",
    "CheckerError",
    "MutationError",
    "ONNXProgram",
    "OnnxExporterError",
    "OnnxExporterWarning",
    "TranslationError",
    "UnsupportedOperatorError",
    "VerificationError",
    "export",
    "is_in_onnx_export",
]
