"""Every error fx_onnx raises on purpose, and its warning; each message is one sentence that says what to do."""

import inspect
import warnings


class OnnxExporterError(RuntimeError):
    """The base of all of them: catch this one to catch any failure of an export."""


class ArgumentError(OnnxExporterError, ValueError):
    """An argument of a public function is not one it takes."""


class CaptureError(OnnxExporterError):
    """torch.export could not capture the model; the cause is torch's own error."""


class UnsupportedOperatorError(OnnxExporterError):
    """The captured program calls operators with neither a translation nor a decomposition; the message lists all."""


class MutationError(OnnxExporterError):
    """An in-place write cannot be expressed as a pure value."""


class TranslationError(OnnxExporterError):
    """The translation of one FX node failed; the message names the node, its arguments and the user's source line."""


class CheckerError(OnnxExporterError):
    """The finished model is not valid ONNX."""


class VerificationError(OnnxExporterError):
    """The ONNX program's results differ from the PyTorch module's."""


class OnnxExporterWarning(UserWarning):
    """Something was not as asked, and the export went on: a dim that came out static, a weight without a place."""


def warn(message: str) -> None:
    """Warns at the line of the user's code that called into fx_onnx."""
    level, frame = 1, inspect.currentframe()
    package = __name__.partition(".")[0]
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == package:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, OnnxExporterWarning, stacklevel=level)
