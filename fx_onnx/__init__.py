"""Exports PyTorch models to ONNX through torch.export.

The names in ``__all__`` are the public interface. Those that need onnx, onnx_ir or onnxruntime are imported on first
use, because these packages take longer to import than the rest of fx_onnx.
"""

from importlib import import_module
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
from fx_onnx.core.version import version as _version
from fx_onnx.export import export

if TYPE_CHECKING:
    from fx_onnx.passes.optimize import optimize
    from fx_onnx.program.onnx_program import ONNXProgram
    from fx_onnx.program.verify import Difference, Verification, verify

    __version__: str

__all__ = [
    "ArgumentError",
    "CaptureError",
    "CheckerError",
    "Difference",
    "MutationError",
    "ONNXProgram",
    "OnnxExporterError",
    "OnnxExporterWarning",
    "TranslationError",
    "UnsupportedOperatorError",
    "Verification",
    "VerificationError",
    "__version__",
    "export",
    "is_in_onnx_export",
    "optimize",
    "verify",
]

_LAZY = {
    "Difference": "fx_onnx.program.verify",
    "ONNXProgram": "fx_onnx.program.onnx_program",
    "Verification": "fx_onnx.program.verify",
    "optimize": "fx_onnx.passes.optimize",
    "verify": "fx_onnx.program.verify",
}
"""The module that defines each public name that is imported on first use."""


def __getattr__(name: str) -> Any:
    """Imports a public name on first use."""
    if name == "__version__":
        value: Any = _version()
    elif name in _LAZY:
        value = getattr(import_module(_LAZY[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
