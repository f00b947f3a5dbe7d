"""Exports PyTorch models to ONNX through torch.export."""

from typing import TYPE_CHECKING, Any

from fx_onnx.capture.export_flag import is_in_onnx_export
from fx_onnx.core.errors import (
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

if TYPE_CHECKING:
    from fx_onnx.program.onnx_program import ONNXProgram

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


def __getattr__(name: str) -> Any:
    """ONNXProgram when it is first asked for: onnx_ir and onnx take longer to import than all the rest."""
    if name != "ONNXProgram":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fx_onnx.program.onnx_program import ONNXProgram

    globals()[name] = ONNXProgram
    return ONNXProgram


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
